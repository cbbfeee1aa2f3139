"""The former name of `train.optimizer_config`, for `train/state.py` alone."""

from train.optimizer_config import OptimizerConfig as OptimizerConfig
