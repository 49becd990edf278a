//! What a verb does and answers does not depend on who reads its standard error: nobody may, and the
//! disk that it goes to may be full.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Output, Stdio};

use orrery_testkit::binary::orrery_in;

/// A standard error that cannot be written.
fn unwritable(full: bool) -> Stdio {
    if full {
        return File::options().write(true).open("/dev/full").unwrap().into();
    }
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn ran(at: &Path, arguments: &str, errors: Stdio) -> Output {
    let mut command = orrery_in(at);
    command.args(arguments.split(' ')).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(errors).spawn().unwrap().wait_with_output().unwrap()
}

#[test]
fn no_verb_depends_on_its_standard_error() {
    for arguments in [
        "fly",
        "import --data-dir d nowhere",
        "status --data-dir d",
        "verify --data-dir d",
        "query 1",
        "query 1 --jwt t --base http://127.0.0.1:1/rest",
        "list --jwt t --base http://127.0.0.1:1/rest",
        "backup nowhere/b --data-dir d",
        "backup nowhere --check",
        "restore nowhere --data-dir d",
        "export --data-dir d --into e --from 2 --to 3",
        "backfill --data-dir d --from 2 --to 3",
        "prove --check nowhere",
        "new a/b",
        "config check --config nowhere",
        "rebuild --data-dir d accounts",
        "webhooks list --jwt t --base http://127.0.0.1:1/rest",
        "types --jwt t --base http://127.0.0.1:1/rest a",
        "dev --jwt t --base http://127.0.0.1:1/rest nowhere",
        "token issue --data-dir d --network local --sub a",
    ] {
        let fresh = tempfile::tempdir().unwrap();
        let usual = ran(fresh.path(), arguments, Stdio::piped());
        let code = usual.status.code();
        assert!(code.is_some_and(|code| code != 101), "{arguments}: {usual:?}");
        for full in [true, false] {
            let fresh = tempfile::tempdir().unwrap();
            let ran = ran(fresh.path(), arguments, unwritable(full));
            assert_eq!(ran.status.code(), code, "{arguments}");
            let has_answer = |output: &Output| !output.stdout.is_empty();
            assert_eq!(has_answer(&ran), has_answer(&usual), "{arguments}");
        }
    }
}
