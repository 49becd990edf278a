//! P29: storing ledgers with all checks of what their headers bind, beside the check of the header's
//! hash alone.

use std::convert::Infallible;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use orrery::domain::Network;
use orrery::pipeline::{Pipeline, Trust};
use orrery::store::{Durability, Store};
use orrery::validators::Validators;
use orrery::verify::Checks;

use super::amplify;
use super::dense;
use super::indexing::raw;
use super::ingest::Steps;
use super::many;
use super::measure::{REPETITIONS, alternate, sized, time};
use super::recorded::Recorded;
use super::report::{Goal, Report, Row};

const P29: Goal = Goal::at_least(0.9, 0.95);

/// Ledgers per repetition.
const LEDGERS: u64 = sized(240, 4);

/// Measures P29 on public and on dense ledgers: as a service stores them, and as an import does.
pub fn run(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let public = amplify::chain(recorded, LEDGERS / recorded.ledgers.len() as u64);
    let dense = dense::chain(recorded);
    for (name, ledgers) in [("public ledgers", public), ("dense ledgers", dense)] {
        let load = Load { network: recorded.network.clone(), ledgers, steps: Arc::default() };
        for (kind, durability) in
            [("durable ingest", Durability::Synced), ("import", Durability::Deferred)]
        {
            let sides = alternate(
                || load.per_second(directory, Checks::All, durability),
                || load.per_second(directory, Checks::HeaderHash, durability),
            );
            let name = format!("P29 {kind} with / without checks, {name}");
            let ledgers = (load.ledgers.len() * REPETITIONS * 2) as f64;
            report.note(format!("{name}, per ledger: {}.", load.steps.per_ledger(ledgers)));
            report.add(Row::new(name, "ledgers/s", sides, P29));
        }
    }
    Ok(())
}

struct Load {
    network: Network,
    ledgers: Vec<Vec<u8>>,
    steps: Arc<Steps>,
}

impl Load {
    fn per_second(&self, directory: &Path, checks: Checks, durability: Durability) -> f64 {
        let directory = tempfile::tempdir_in(directory).expect("a directory");
        let store = Store::open(directory.path(), Some(&self.network)).expect("a new store");
        let mut trust = Trust::default();
        trust.policy.checks = checks;
        trust.validators = Validators::of_network(&self.network).map(Arc::new);
        let pipeline = Pipeline::new(Arc::new(store), many::options(true), self.steps.clone())
            .with_trust(trust);
        let ledgers = self.ledgers.iter().map(|xdr| raw(xdr)).collect::<Vec<_>>();
        let stored = time(|| {
            let ledgers = ledgers.into_iter().map(Ok::<_, Infallible>);
            let stored = pipeline.run(ledgers, durability, |_| ControlFlow::Continue(()));
            stored.expect("the load is a valid chain");
        });
        self.ledgers.len() as f64 / stored.as_secs_f64()
    }
}
