"""The test kit of Kiln: a CUDA driver that simulates devices, and a plugin of pytest.

``kiln.testing`` and ``kiln run --simulate`` find the driver here.
"""

from pathlib import Path

FOLDER = Path(__file__).absolute().parent / "lib"
"""What KILN_TEST_KIT names."""
