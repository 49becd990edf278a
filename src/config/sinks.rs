//! Settings of sinks, whose sections have names that the operator chooses: `[sinks.NAME]`, and
//! `ORRERY_SINKS_NAME_KEY`. Also checks their addresses.

use super::Config;
use crate::postgres::ServerUrl;
use crate::settings::Sinks;
use crate::settings::section::Describe;

/// Beginning of the keys of all sinks.
const SINKS: &str = "sinks.";
/// Beginning and end of the variables with their addresses.
const VARIABLES: &str = "ORRERY_SINKS_";
const ADDRESS: &str = "_URL";

/// Returns the defaults with those of the sink to which a key belongs; `None` for keys of other sections, and for those
/// that no sink has.
pub(super) fn defaults_beside(key: &str) -> Option<Config> {
    let (name, _) = key.strip_prefix(SINKS)?.split_once('.')?;
    Config::describe(Some(key))?;
    Some(Config { sinks: Sinks::of_one(name), ..Config::default() })
}

/// Returns a sentence for a key of a sink that cannot have its name.
pub(super) fn wrong_name(key: &str) -> Option<String> {
    let rest = key.strip_prefix(SINKS)?;
    match rest.rsplit_once('.') {
        Some((name, _)) => Sinks::name_error(name),
        None => Some(format!(
            "there is no setting {key}: give each sink a section of its own, such as [sinks.main]"
        )),
    }
}

/// Returns the key of the setting that a variable with the address of a sink stands for.
pub(super) fn address_of_variable(variable: &str) -> Option<String> {
    let name = variable.strip_prefix(VARIABLES)?.strip_suffix(ADDRESS)?.to_lowercase();
    Sinks::name_error(&name).is_none().then(|| format!("{SINKS}{name}.url"))
}

impl Config {
    /// Returns an error message when a sink cannot be used as the settings say.
    pub(super) fn sinks_error(&self) -> Option<String> {
        let wrong = |(name, sink): (&String, &crate::settings::Sink)| {
            let error = ServerUrl::without_password(&sink.url).err()?;
            Some(format!("sinks.{name}.url: {error}"))
        };
        self.sinks.validation_error().or_else(|| self.sinks.0.iter().find_map(wrong))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load_text;
    use super::super::{Layers, Settings};

    const SINK: &str = "[sinks.main]\nurl = 'postgres://me@db.example/data'\nprojects = ['xlm']\n";

    #[test]
    fn each_sink_has_a_section() {
        let text = format!("{SINK}notify = false\n[sinks.b]\nurl = 'postgres://localhost/b'\n");
        let settings = load_text(&text).unwrap();
        let sinks = &settings.config.sinks.0;
        assert_eq!(sinks.keys().collect::<Vec<_>>(), ["b", "main"]);
        assert!(sinks["b"].notify && !sinks["main"].notify);
        assert_eq!((&*sinks["b"].schema, &*sinks["main"].projects[0]), ("{project}", "xlm"));
        let shown = settings.to_string();
        assert!(shown.contains("\n[sinks.main]\n") && shown.contains("notify = false"), "{shown}");
    }

    #[test]
    fn variables_name_sinks() {
        let variables = |variables: &[(&str, &str)]| {
            let environment = variables.iter().map(|(name, value)| (name.into(), value.into()));
            Settings::load(Layers { environment: environment.collect(), ..Layers::default() })
        };
        let settings = variables(&[
            ("ORRERY_SINKS_A_B_PASSWORD", "hunter2"),
            ("ORRERY_SINKS_A_B_URL", "postgres://me@db.example/data"),
            ("ORRERY_SINKS_A_B_PROJECTS", "xlm, usdc"),
            ("ORRERY_SINKS_OTHER_PASSWORD", "hunter3"),
            ("ORRERY_SINKS_PORT", "tcp://10.0.0.1:8484"),
        ])
        .unwrap();
        let sink = &settings.config.sinks.0["a_b"];
        assert_eq!((sink.password.reveal(), sink.projects.len()), ("hunter2", 2));
        assert_eq!((settings.config.sinks.0.len(), settings.warnings.len()), (1, 2));
        for shown in [settings.to_string(), format!("{:?}", settings.config)] {
            assert!(!shown.contains("hunter"), "{shown}");
        }
        assert!(!format!("{:?}", settings.warnings).contains("hunter"), "{:?}", settings.warnings);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_sentence() {
        for (text, sentence) in [
            ("[sinks.main]\nprojects = ['xlm']", "sinks.main has no url: give the address"),
            (
                "[sinks.main]\nurl = 'postgres://u:hunter2@h/d'",
                "take the password out of the address",
            ),
            ("[sinks.main]\nurl = 'postgres://h/d?sslmode=prefer'", "must not be prefer or allow"),
            ("[sinks.main]\nurl = 'mysql://h/d'", "sinks.main.url: the address of the server must"),
            ("[sinks.Main]\nurl = 'postgres://h/d'", "line 2: 'Main' cannot be the name of a sink"),
            ("[sinks.\"a.b\"]\nurl = 'x'", "'a.b' cannot be the name of a sink"),
            ("[sinks.main]\nport = 5432", "line 2: there is no setting sinks.main.port"),
            (
                "[sinks]\nurl = 'postgres://h/d'",
                "line 2: there is no setting sinks.url: give each sink",
            ),
            ("[sinks.main]\nprojects = 'xlm'", "give a list of projects"),
            (
                "[sinks.main]\nurl = 'postgres://h/d'\npassword = 'hunter2'\npassword_file = '/p'",
                "are both given: keep one",
            ),
        ] {
            let error = load_text(text).unwrap_err().to_string();
            assert!(error.contains(sentence), "{error}");
            assert!(!error.contains("hunter") && !error.contains('\n'), "{error}");
        }
    }
}
