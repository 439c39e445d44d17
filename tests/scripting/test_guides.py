"""The tables of the guides on sharing and scripting name what there is."""

from pathlib import Path

from chakra.anonymize.trace import KEPT_ATTRIBUTES
from chakra.output_schemas import names

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"


def test_tables_are_whole() -> None:
    scripting = (GUIDES / "scripting.md").read_text()
    assert all(f"`{name}`" in scripting for name in names())
    sharing = (GUIDES / "sharing.md").read_text()
    assert all(f"`{name}`" in sharing for name in KEPT_ATTRIBUTES)
