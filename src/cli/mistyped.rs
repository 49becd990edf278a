//! What is said of arguments that are wrong: which word was meant, and how the verb is used.

use std::borrow::Cow;
use std::env;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use orrery::domain::without_seeds;

use super::output;

/// Words of other programs that are spelt otherwise than the verb for the same.
const VERBS: [(&str, &str); 6] = [
    ("start", "serve"),
    ("run", "serve"),
    ("sql", "query"),
    ("ls", "list"),
    ("rm", "delete"),
    ("logs", "executions"),
];

/// Options of other programs that are spelt otherwise than the option for the same.
const OPTIONS: [(&str, &str); 4] =
    [("port", "listen"), ("host", "listen"), ("token", "jwt"), ("url", "base")];

/// Prints what is wrong with the arguments of this process, or the help, and ends the process.
pub fn explain(error: clap::Error, command: &Command) -> ! {
    if env::args_os().len() < 2 {
        // Who gives no arguments wants to know which there are; a script gets no result.
        output::tell(command.clone().render_help().to_string().trim_end());
        std::process::exit(error.exit_code());
    }
    let mut error = without_environment(error, command);
    let words: Vec<String> = env::args().skip(1).collect();
    suggest(&mut error, command, &words);
    let text = error.render().to_string();
    if let Cow::Owned(_) = without_seeds(&text) {
        output::tell(text.trim_end());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Returns the same error with a line on usage that has no options which the environment gives, as if
/// they were needed.
fn without_environment(error: clap::Error, command: &Command) -> clap::Error {
    if !error.use_stderr() {
        return error;
    }
    let unaided = command.clone().mut_args(|argument| argument.env(None::<&'static str>));
    match unaided.try_get_matches() {
        Err(again) if again.kind() == error.kind() => again,
        _ => error,
    }
}

/// Adds what was probably meant, and leaves out verbs that are not for people.
fn suggest(error: &mut clap::Error, command: &Command, words: &[String]) {
    match error.kind() {
        ErrorKind::MissingSubcommand => {
            if let Some(ContextValue::Strings(verbs)) = error.get(ContextKind::ValidSubcommand) {
                let is_shown = |verb: &&String| {
                    command.find_subcommand(verb).is_none_or(|found| !found.is_hide_set())
                };
                let shown = verbs.iter().filter(is_shown).cloned().collect();
                error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(shown));
            }
        }
        ErrorKind::InvalidSubcommand => {
            let meant = meant(error, ContextKind::InvalidSubcommand, &VERBS);
            if let Some(verb) = meant.filter(|_| is_first_verb(command, words)) {
                let verbs = ContextValue::Strings(vec![verb.to_owned()]);
                error.insert(ContextKind::SuggestedSubcommand, verbs);
            }
        }
        ErrorKind::UnknownArgument => {
            let Some(option) = meant(error, ContextKind::InvalidArg, &OPTIONS) else { return };
            if has_option(command, words, option) {
                let option = ContextValue::String(format!("--{option}"));
                error.insert(ContextKind::SuggestedArg, option);
            }
        }
        _ => {}
    }
}

/// Returns what a word of the error's context stands for.
fn meant(
    error: &clap::Error,
    kind: ContextKind,
    words: &[(&str, &'static str)],
) -> Option<&'static str> {
    let Some(ContextValue::String(given)) = error.get(kind) else { return None };
    let given = given.trim_start_matches('-');
    words.iter().find(|(word, _)| *word == given).map(|(_, meant)| *meant)
}

/// Whether the words have no verb of the program: the wrong one is not below another, as in `webhooks`.
fn is_first_verb(command: &Command, words: &[String]) -> bool {
    words.iter().all(|word| command.find_subcommand(word).is_none())
}

/// Whether the verb among the words takes an option, as every verb does or itself.
fn has_option(command: &Command, words: &[String], name: &str) -> bool {
    let has = |command: &Command| command.get_arguments().any(|it| it.get_long() == Some(name));
    let mut verb = command;
    let mut is_known = has(command);
    for word in words {
        if let Some(found) = verb.find_subcommand(word) {
            verb = found;
            is_known |= has(verb);
        }
    }
    is_known
}

#[cfg(test)]
mod tests {
    use super::super::command;
    use super::*;

    fn said(words: &[&str]) -> String {
        let command = command();
        let arguments = std::iter::once(&"orrery").chain(words);
        let mut error = command.clone().try_get_matches_from(arguments).unwrap_err();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        suggest(&mut error, &command, &words);
        error.render().to_string()
    }

    #[test]
    fn words_of_other_programs_lead_to_the_right_one() {
        for (words, meant) in [
            (&["start"][..], "'serve'"),
            (&["--data-dir", "d", "run"], "'serve'"),
            (&["sql", "select 1"], "'query'"),
            (&["quary"], "'query'"),
            (&["demo", "--port", "9000"], "'--listen'"),
            (&["webhooks", "listen", "--port", "9000"], "'--listen'"),
            (&["list", "--token", "x"], "'--jwt'"),
        ] {
            let said = said(words);
            assert!(said.contains("tip: ") && said.contains(meant), "{words:?}: {said}");
        }
        // Not where it would be wrong again.
        assert!(!said(&["list", "--port", "9000"]).contains("--listen"));
        assert!(!said(&["webhooks", "start"]).contains("serve"));
    }

    #[test]
    fn verbs_for_the_program_itself_are_not_listed() {
        let said = said(&["--data-dir", "d"]);
        assert!(said.contains("watch") && said.contains("serve"), "{said}");
        for hidden in ["generate", "sql-worker", "compile,"] {
            assert!(!said.contains(hidden), "{hidden} is in {said}");
        }
    }
}
