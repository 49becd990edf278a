//! Tests trials whose client disconnects.

use std::cell::Cell;

use super::*;
use crate::trial::{self, Trial, TrialSelection};

fn trial(code: &[u8]) -> Trial {
    let deploy = Deploy {
        code: code.to_vec(),
        project_name: "seen".to_owned(),
        contracts: vec![market()],
        public: None,
        replace: Replace::No,
        allow_unfit: false,
    };
    Trial { deploy, on: TrialSelection::Last(20) }
}

#[test]
fn an_abandoned_trial_ends_after_the_current_run() {
    let scene = Scene::new();
    scene.add_all(FIRST..=LAST);
    let owner = Owner("ana".to_owned());
    let asked = Cell::new(0);
    let count = |up_to: u32| {
        asked.set(asked.get() + 1);
        asked.get() > up_to
    };
    let code = module("");
    let whole = trial::run(&scene.runner, &owner, trial(&code), &|| count(u32::MAX)).unwrap();
    assert_eq!(whole.transactions.iter().filter(|it| it.run.is_ok()).count(), 20);
    assert_eq!(asked.replace(0), 20, "checked before each run");
    let ended = trial::run(&scene.runner, &owner, trial(&code), &|| count(3)).unwrap_err();
    assert!(matches!(ended, ProgramError::Interrupted));
    assert_eq!(asked.get(), 4);
}
