"""Maps the repository's folders to import packages; all other metadata is in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = {
    "chakra": "chakra",
    "chakra.replay": "replay",
    "chakra.converters": "converters",
    "chakra.schemas": "schemas",
}

packages = [
    package
    for name, folder in FOLDERS.items()
    for package in [name, *(f"{name}.{sub}" for sub in find_packages(folder))]
]

setup(
    package_dir=FOLDERS,
    packages=packages,
    package_data={
        "chakra": ["py.typed", "presets/*.yml", "viz/templates/*", "viz/templates/**/*"],
        "chakra.schemas": ["*.proto", "*.pyi"],
    },
)
