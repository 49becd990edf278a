//! Generates the files of a project, and writes them to a folder as a whole or not at all.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use orrery::tables::in_query;

use super::definitions;
use super::functions::Program;
use super::native_test;
use crate::cli::Failure;

/// Files, each with its path within the project and its content.
type Files = Vec<(&'static str, String)>;

const MANIFEST: &str = include_str!("templates/manifest.toml");
/// Lock file with versions of all libraries that work together, without the project's own package.
const LOCK: &str = include_str!("templates/lock.toml");
const MAKEFILE: &str = include_str!("templates/makefile.txt");
const IGNORED: &str = include_str!("templates/gitignore.txt");
const README: &str = include_str!("templates/readme.md");
const EMITTED: &str = include_str!("templates/emitted.rs.txt");
const POLL: [(&str, &str); 3] = [
    ("src/lib.rs", include_str!("templates/poll/lib.rs.txt")),
    ("src/rows.rs", include_str!("templates/poll/rows.rs.txt")),
    ("src/test.rs", include_str!("templates/poll/test.rs.txt")),
];
/// Beginning of each package in a lock file.
const PACKAGE: &str = "\n[[package]]\n";
/// Lines of the README about native tests.
const TESTS: &str = "\
| `src/test.rs` | Calls in the SDK's test environment, and the rows that they emit |
| `src/test/emitted.rs` | How a test reads rows; needs no changes |
";
const SECOND: &str = "`make test` runs the tests natively.";
/// Command of the Makefile that runs native tests.
const NATIVE_TEST: &str = "$(CARGO) test --features program";
/// Table of the example's rows.
const POLL_TABLE: &str = "vote";

/// Names of a project.
pub struct Names<'a> {
    /// Name of the project and of its package.
    pub project: &'a str,
    /// Name of the library, and so of the module.
    pub module: &'a str,
}

/// Returns the files of the example project.
pub fn example(names: &Names<'_>) -> Files {
    let about = "A poll, as an example of a contract and the indexing program for it.";
    let files = "| `src/lib.rs` | The contract, which emits a row where it counts a vote |\n";
    let first = "Replace the contract with yours, or write the functions of a deployed contract, with its names \
                 and its storage: `orrery new NAME --contract C…` starts from its interface.";
    let mut all = shared(names, None, "", about, files, first);
    all.extend(POLL.map(|(path, text)| (path, text.to_owned())));
    all
}

/// Returns the files of a project for a contract whose interface is known. `contract` is the
/// contract's id, if that is known as well.
pub fn of_interface(names: &Names<'_>, program: &Program<'_>, contract: Option<&str>) -> Files {
    let whose =
        contract.map_or_else(|| "a contract".to_owned(), |id| format!("the contract `{id}`"));
    let about = format!("An indexing program for {whose}, generated from its interface.");
    let mut files =
        "| `src/lib.rs` | The contract's functions, to be filled in, one with an example of a row |\n"
            .to_owned();
    if program.has_types() {
        files.push_str("| `src/interface.rs` | The contract's types and events |\n");
    }
    let first = "Fill in the functions in `src/lib.rs` that emit rows, and define the rows in `src/rows.rs`.";
    let contracts = contract.map(|id| format!(" {id}")).unwrap_or_default();
    let mut all = shared(names, Some(program), &contracts, &about, &files, first);
    all.push(("src/lib.rs", program.library(&about.replace('`', ""))));
    all.push(("src/rows.rs", program.rows()));
    if program.is_native() {
        all.push(("src/test.rs", native_test::source(program)));
    }
    all.extend(definitions::source(program.interface).map(|text| ("src/interface.rs", text)));
    all
}

/// Returns the files that all projects have, and those that all with a native test have. A
/// `program` has none when the SDK does not support its types there.
fn shared(
    names: &Names<'_>,
    program: Option<&Program<'_>>,
    contracts: &str,
    about: &str,
    files: &str,
    first: &str,
) -> Files {
    let types = program.map(|program| program.interface.not_native().join(", "));
    let types = types.filter(|types| !types.is_empty());
    let (tests, second, test) = match &types {
        None => (TESTS, SECOND.to_owned(), NATIVE_TEST.to_owned()),
        Some(types) => (
            "",
            format!("Native tests are not possible: soroban-sdk does not support {types} there."),
            format!(
                "@echo \"soroban-sdk does not support the types {types} in a native test: use make try\" >&2; exit 1"
            ),
        ),
    };
    let table = program.map_or(POLL_TABLE, |program| &program.row.table);
    let view = in_query(names.project, table);
    let filled = |text: &str| {
        text.replace("{{name}}", names.project)
            .replace("{{module}}", names.module)
            .replace("{{contracts}}", contracts)
            .replace("{{about}}", about)
            .replace("{{files}}", files)
            .replace("{{tests}}", tests)
            .replace("{{first}}", first)
            .replace("{{second}}", &second)
            .replace("{{test}}", &test)
            .replace("{{view}}", &view)
    };
    let mut all = vec![
        ("Cargo.toml", filled(MANIFEST)),
        ("Cargo.lock", lock(names.project)),
        ("Makefile", filled(MAKEFILE)),
        ("README.md", filled(README)),
        (".gitignore", IGNORED.to_owned()),
    ];
    all.extend(types.is_none().then(|| ("src/test/emitted.rs", EMITTED.to_owned())));
    all
}

/// Whether a library that every project uses has this name, which the project then cannot have.
pub fn is_used(package: &str) -> bool {
    LOCK.contains(&format!("{PACKAGE}name = \"{package}\"\n"))
}

/// Returns the lock file of a project, with its own package inserted in the order of names, as
/// cargo requires.
fn lock(project: &str) -> String {
    let before = |part: &&str| {
        let name = part.strip_prefix("name = \"").and_then(|rest| rest.split('"').next());
        // The part before the first package has no name.
        name.is_none_or(|name| name < project)
    };
    let mut packages: Vec<&str> = LOCK.split(PACKAGE).collect();
    let own = format!(
        "name = \"{project}\"\nversion = \"0.1.0\"\ndependencies = [\n \"retroshade-sdk\",\n \"soroban-sdk\",\n]\n"
    );
    let at = packages.iter().take_while(|part| before(part)).count();
    packages.insert(at, &own);
    packages.join(PACKAGE)
}

/// Creates the folder with all files: writes them to a temporary directory beside it, which is then
/// renamed.
pub fn write(folder: &Path, files: &Files) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        let folder = folder.display();
        match error.kind() {
            ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists => Failure::failed(format!(
                "{folder} exists and is not empty: give another name, or --dir with another folder"
            )),
            ErrorKind::NotADirectory => {
                Failure::failed(format!("{folder} cannot be a folder: a file is in the way"))
            }
            ErrorKind::NotFound => {
                Failure::failed(format!("the parent folder of {folder} does not exist"))
            }
            _ => Failure::failed(format!("cannot create {folder}: {error}")),
        }
    };
    if is_taken(folder).map_err(failed)? {
        return Err(failed(ErrorKind::DirectoryNotEmpty.into()));
    }
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    // Removed when this function fails.
    let draft =
        tempfile::Builder::new().prefix(".orrery-new-").tempdir_in(&parent).map_err(failed)?;
    for (path, text) in files {
        write_file(&draft.path().join(path), text).map_err(failed)?;
    }
    // Replaces an empty folder, but nothing else.
    fs::rename(draft.path(), folder).map_err(failed)?;
    // The directory was renamed, so there is nothing left to remove.
    let _ = draft.keep();
    Ok(())
}

/// Whether the folder exists and is not empty.
fn is_taken(folder: &Path) -> io::Result<bool> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_file_lists_the_project_in_sorted_order() {
        for project in ["Votes", "a", "my-poll", "soroban-sdk2", "zzz"] {
            let lock: toml::Table = lock(project).parse().unwrap();
            let packages = lock["package"].as_array().unwrap();
            let names = packages.iter().map(|it| it["name"].as_str().unwrap());
            let names: Vec<_> = names.collect();
            assert!(names.is_sorted(), "{names:?}");
            assert_eq!(names.iter().filter(|name| **name == project).count(), 1, "{project}");
            for uses in ["retroshade-sdk", "soroban-sdk"] {
                assert!(names.contains(&uses));
            }
        }
        assert!(is_used("serde") && is_used("soroban-sdk") && !is_used("votes"));
    }
}
