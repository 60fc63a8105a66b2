"""The licence texts in a release: those of everything that is linked into the program."""

import shutil

from .commands import SupplyChainError
from .system_libraries import toolchain_folder


def write(inventory, folder):
    """Copies licences and notices into a folder and lists them in LICENCES.txt there."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"What is in the program {inventory.program.name}, with the licences that it declares. Their texts are in the folders",
             "beside this file. The licence of push-gateway itself is in LICENSE, one folder up.", ""]
    for package in (package for package in inventory.packages if package.modules):
        lines.append(f"{package.name} {package.version}: {package.licence}, {package.url}")
        copy(package.licence_files(), folder / package.identity)
        for code in package.bundled:
            lines.append(f"  holds {code.name} {code.version}: {code.licence}")
            copy(sorted(path for path in code.folder.glob("LICENSE*") if path.is_file()), folder / package.identity / code.module)
    for part in inventory.toolchain:
        lines.append(f"{part.name} of Swift {part.version}: {part.licence}")
        if part.icu_version:
            lines.append(f"  holds ICU {part.icu_version}: Unicode-3.0")
    copy([toolchain_folder() / "share/swift/LICENSE.txt"], folder / "swift")
    lines += ["", "Linked statically from Debian: start files and support routines of the compiler and the C library.", ""]
    lines += [f"{package.name} {package.version}: {package.licence}"
              for package in inventory.debian if any(file.is_static for file in package.files)]
    lines += ["", "Loaded from the system, and not part of this archive (as on the machine that built it):", ""]
    lines += [f"{package.name} {package.version}: {package.licence}"
              for package in inventory.debian if not package.is_linked_statically_only]
    (folder / "LICENCES.txt").write_text("\n".join(lines) + "\n")


def copy(files, folder):
    if not files:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        if not file.exists():
            raise SupplyChainError(f"there is no {file}, which must go with a release")
        shutil.copyfile(file, folder / file.name)
