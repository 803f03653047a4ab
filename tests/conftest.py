"""Settings for all tests: threads and hypothesis profiles."""

import os

import torch
from hypothesis import HealthCheck, settings

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads and the tests' are more than two cores
torch.set_num_threads(1)

_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.register_profile("full", _PATIENT, max_examples=100)
settings.register_profile("quick", _PATIENT, max_examples=20)  # pytest --hypothesis-profile=quick
settings.load_profile("full")
