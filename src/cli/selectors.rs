//! Options that select the contracts of a project beside those that it names.

use clap::Args;
use serde_json::{Value, json};

use super::Failure;

#[derive(Debug, Args)]
pub struct Selectors {
    /// Contract whose events announce the contracts to watch, such as the factory of an exchange; with --event
    /// and --param, each of which may be repeated: the nth with the nth
    #[arg(long = "factory", value_name = "C…", value_delimiter = ',', requires_all = ["events", "params"])]
    factories: Vec<String>,
    /// Name of the event by which a --factory announces a contract, as its table would be called
    #[arg(long = "event", value_name = "NAME", requires = "factories")]
    events: Vec<String>,
    /// Parameter of that event that is the contract, as a column would be called
    #[arg(long = "param", value_name = "PARAM", requires = "factories")]
    params: Vec<String>,
    /// Accounts and contracts whose contracts are watched: those that they created, as far as the network
    /// says who did, which it does not of what most factories create. May be repeated
    #[arg(long = "created-by", value_name = "C…|G…", value_delimiter = ',')]
    created_by: Vec<String>,
    /// SHA-256 of modules: each contract is watched while it runs one of them. May be repeated
    #[arg(long, value_name = "HASH", value_delimiter = ',')]
    wasm: Vec<String>,
    /// Names of events of which those of every contract are watched
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    all: Vec<String>,
}

impl Selectors {
    /// Whether they select nothing.
    pub fn is_empty(&self) -> bool {
        let Self { factories, events, params, created_by, wasm, all } = self;
        [factories, events, params, created_by, wasm, all].iter().all(|list| list.is_empty())
    }

    /// Writes them into the body of a request.
    pub fn write_into(&self, body: &mut Value) -> Result<(), Failure> {
        let counts = [self.factories.len(), self.events.len(), self.params.len()];
        if counts[0] != counts[1] || counts[0] != counts[2] {
            return Err(Failure::usage(format!(
                "there are {} --factory, {} --event and {} --param: give one --event and one --param for each \
                 --factory",
                counts[0], counts[1], counts[2]
            )));
        }
        if !self.factories.is_empty() {
            let named = self.events.iter().zip(&self.params);
            let factories = self.factories.iter().zip(named);
            let factories = factories.map(|(contract, (event, param))| {
                json!({ "contract": contract, "event": event, "param": param })
            });
            body["factories"] = factories.collect();
        }
        let lists = [("created_by", &self.created_by), ("wasm", &self.wasm), ("all", &self.all)];
        for (name, list) in lists {
            if !list.is_empty() {
                body[name] = json!(list);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        selectors: Selectors,
    }

    fn body(words: &[&str]) -> Result<Value, String> {
        let line = Line::try_parse_from(["watch"].iter().chain(words));
        let line = line.map_err(|error| error.to_string())?;
        let mut body = json!({});
        line.selectors.write_into(&mut body).map_err(|error| error.to_string())?;
        Ok(body)
    }

    #[test]
    fn the_nth_event_is_that_of_the_nth_factory() {
        let words = [
            "--factory",
            "CA",
            "--event",
            "add_pool",
            "--param",
            "value_1",
            "--factory",
            "CB",
            "--event",
            "deploy",
            "--param",
            "value",
            "--wasm",
            "ab,cd",
            "--all",
            "mint",
        ];
        assert_eq!(
            body(&words).unwrap(),
            json!({
                "factories": [
                    { "contract": "CA", "event": "add_pool", "param": "value_1" },
                    { "contract": "CB", "event": "deploy", "param": "value" },
                ],
                "wasm": ["ab", "cd"],
                "all": ["mint"],
            })
        );
        assert!(body(&["--event", "a"]).unwrap_err().contains("--factory"));
        let few = ["--factory", "CA,CB", "--event", "a", "--param", "b"];
        assert!(body(&few).unwrap_err().contains("2 --factory, 1 --event and 1 --param"));
    }
}
