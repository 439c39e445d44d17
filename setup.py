"""Maps the repository's folders to import packages; all other metadata is in pyproject.toml."""

import sys

from setuptools import find_namespace_packages, setup

FOLDERS = {
    "chakra": "chakra",
    "chakra.replay": "replay",
    "chakra.converters": "converters",
    "chakra.schemas": "schemas",
}

# folders of data are listed, too: setuptools treats every folder below a package as one, and warns of unlisted ones
#: import packages whose folders lie beside that of `chakra`
BESIDE = [name for name in FOLDERS if name != "chakra"]

packages = [
    package
    for name, folder in FOLDERS.items()
    for package in [
        name,
        *(f"{name}.{sub}" for sub in find_namespace_packages(folder, exclude=["*__pycache__*"])),
    ]
]

#: kinds of files beside modules that the packages read
DATA = (
    "j2",
    "cc",
    "md",
    "csv",
    "typed",
    "proto",
    "pyi",
    "yml",
    "yaml",
    "json",
    "html",
    "css",
    "js",
    "svg",
    "txt",
)

# An editable installation puts the repository's root on sys.path, where `chakra` finds the other folders itself. With
# all of them setuptools would install a finder that Python asks last: a script beside a clone that is called chakra
# would import the clone's folder as an empty package of that name.
if "editable_wheel" in sys.argv:
    FOLDERS = {"": "."}
    packages = [package for package in packages if not package.startswith(tuple(BESIDE))]

setup(
    package_dir=FOLDERS,
    packages=packages,
    package_data={name: [f"**/*.{suffix}" for suffix in DATA] for name in FOLDERS},
)
