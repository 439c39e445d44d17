"""Maps the repository's folders to import packages; all other metadata is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

FOLDERS = {
    "chakra": "chakra",
    "chakra.replay": "replay",
    "chakra.converters": "converters",
    "chakra.schemas": "schemas",
}

# folders of data are listed, too: setuptools treats every folder below a package as one, and warns of unlisted ones
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

setup(
    package_dir=FOLDERS,
    packages=packages,
    package_data={name: [f"**/*.{suffix}" for suffix in DATA] for name in FOLDERS},
)
