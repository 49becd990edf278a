//! Settings of the process: the stellar-core that it runs, its logs, and messages about its state.

use std::path::PathBuf;

use orrery_runtime::observe::logs::{LogFormat, LogLevel};

use crate::section;
use crate::values::{Secret, SecretUrl};

section! {
    /// `[core]`
    pub struct Core {
        /// The stellar-core program: a path, or a name that is looked up in `PATH`.
        pub binary: PathBuf = PathBuf::from("stellar-core"),
            "a program, such as \"stellar-core\" or \"/usr/bin/stellar-core\"";
        /// Directory used only by stellar-core; empty for one in the data directory.
        pub storage: PathBuf = PathBuf::new(), "a directory, such as \"/var/lib/orrery/core\"";
        /// Path of the operator's own stellar-core configuration file; empty for none.
        pub config: PathBuf = PathBuf::new(), "a file, such as \"/etc/orrery/stellar-core.toml\"";
        /// Port of core's HTTP interface. 0 uses the port in `config`, else 11626 for a standalone
        /// network and a free port for others.
        pub http_port: u16 = 0,
            "a port from 1 to 65535, or 0 for the one in 'core.config' or the default";
    }
}

section! {
    /// `[status]`: targets of messages about changes of the service's state. Each is empty for
    /// none.
    pub struct Status {
        /// Address of a Discord webhook.
        pub discord_webhook: SecretUrl = SecretUrl::default();
        /// Address of a Slack webhook.
        pub slack_webhook: SecretUrl = SecretUrl::default();
        /// Token of a Telegram bot, a colon, and the number or `@name` of a chat.
        pub telegram_bot: Secret = Secret::default(),
            "the token of a bot, a colon, and the number or @name of a chat";
        /// Address to which messages are sent as JSON.
        pub generic_url: SecretUrl = SecretUrl::default();
    }
}

impl Status {
    /// Returns an error message when the target of a Telegram bot is incomplete.
    pub fn validation_error(&self) -> Option<String> {
        let bot = self.telegram_bot.as_option()?;
        (bot.split(':').filter(|part| !part.is_empty()).count() < 3).then(|| {
            "status.telegram_bot is incomplete: give the token of a bot, which itself contains a colon, \
             then a colon and the number or @name of a chat"
                .to_owned()
        })
    }
}

section! {
    /// `[log]`
    pub struct Log {
        /// Format of log lines.
        pub format: LogFormat = LogFormat::Auto;
        /// Lowest level of the log lines that are written.
        pub level: LogLevel = LogLevel::Info;
    }
}
