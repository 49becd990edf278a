//! The verbs for webhooks: `orrery webhooks …`.

mod declared;
mod formatted;
mod listen;
mod manage;
mod on;

use clap::{Args, Subcommand};

use super::Failure;
use super::remote::Remote;

/// Send events to an HTTP endpoint: manage subscriptions and deliveries
#[derive(Debug, Args)]
pub struct Webhooks {
    #[command(subcommand)]
    verb: WebhookVerb,
}

#[derive(Debug, Subcommand)]
enum WebhookVerb {
    Listen(listen::Listen),
    #[command(flatten)]
    Manage(Box<manage::ManageVerb>),
}

impl Webhooks {
    pub fn run(self, remote: &Remote) -> Result<(), Failure> {
        match self.verb {
            WebhookVerb::Listen(verb) => verb.run(),
            WebhookVerb::Manage(verb) => verb.run(remote),
        }
    }
}
