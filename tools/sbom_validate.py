"""Checks a bill of materials against the strict schema of CycloneDX 1.6: `make sbom` runs it, with cyclonedx-python-lib."""

import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

for name in sys.argv[1:]:
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(name).read_text())
    if error:
        sys.exit(f"{name}: {error}")
    print(f"{name}: a valid bill by CycloneDX 1.6")
