"""Regenerate schemas/et_def_pb2.py and its stub from schemas/et_def.proto.

Needs grpcio-tools 1.71, whose protoc emits code for protobuf 5.29, the oldest runtime we allow. The generated
module first asks the runtime for its version: protobuf 6 warns about code of the previous major version and
protobuf 7 refuses it. The rest of the module only hands a serialised descriptor to the runtime, which every
version from 5.29 to below 8 takes (tests try both ends), so that question is taken out here.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"


def generate(target: Path) -> None:
    """Write et_def_pb2.py and et_def_pb2.pyi into the folder ``target``."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{SCHEMAS}",
            f"--python_out={target}",
            f"--pyi_out={target}",
            str(SCHEMAS / "et_def.proto"),
        ],
        check=True,
    )
    module = target / "et_def_pb2.py"
    text = module.read_text(encoding="utf-8")
    text, calls = re.subn(
        r"_runtime_version\.ValidateProtobufRuntimeVersion\(.*?\n\)\n", "", text, flags=re.DOTALL
    )
    text, imports = re.subn(r"from google\.protobuf import runtime_version as _runtime_version\n", "", text)
    # Messages name their module when they are pickled: the import path here, not the file's bare name.
    text, homes = re.subn(r"(Messages\(DESCRIPTOR, ')et_def_pb2'", r"\1chakra.schemas.et_def_pb2'", text)
    if (calls, imports, homes) != (1, 1, 1):
        raise SystemExit(
            "the generated module has another form than expected: adapt tools/generate_schema.py"
        )
    module.write_text(text, encoding="utf-8")
    # The stub leaves out the type arguments that a strict checker asks for.
    stub = target / "et_def_pb2.pyi"
    text = stub.read_text(encoding="utf-8")
    text = re.sub(r"_Mapping\]", "_Mapping[str, _Any]]", text)
    text = text.replace(
        "from typing import ClassVar as _ClassVar", "from typing import Any as _Any, ClassVar as _ClassVar"
    )
    stub.write_text(text, encoding="utf-8")


def main() -> None:
    """Regenerate in place, or with --check say whether the committed files are in step (exit code 1 if
    not).
    """
    if "--check" not in sys.argv[1:]:
        generate(SCHEMAS)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        names = ("et_def_pb2.py", "et_def_pb2.pyi")
        stale = [n for n in names if (SCHEMAS / n).read_bytes() != (Path(folder) / n).read_bytes()]
    if stale:
        raise SystemExit(
            f"not in step with et_def.proto: {', '.join(stale)}; run python tools/generate_schema.py"
        )


if __name__ == "__main__":
    main()
