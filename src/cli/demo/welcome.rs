//! What a demo says when it is ready: commands to paste, or the same facts as JSON.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use orrery::domain::ContractId;
use orrery::sandbox::network::{Sandbox, SandboxWallets};
use orrery::sandbox::source::SandboxNetworkError;
use orrery::service::Node;
use serde_json::json;

use super::super::installed::{self, on_this_machine};
use super::super::remote::{DEFAULT_BASE, base_of};
use super::super::{Failure, output};
use super::projects::{EVENTS, POOLS};

/// What somebody needs to know who tries the demo.
pub struct Welcome {
    address: SocketAddr,
    token: String,
    /// A contract whose events have tables.
    contract: ContractId,
    /// The factory of the exchange, if the network has one.
    factory: Option<ContractId>,
    wallets: SandboxWallets,
    network_passphrase: String,
    close_time: Duration,
    /// The data directory, if it stays when the demo ends.
    directory: Option<PathBuf>,
}

impl Welcome {
    /// Collects what is told; `token` is one of the demo's owner, and the contracts are the market's and the
    /// factory of the exchange.
    pub fn new(
        address: SocketAddr,
        token: String,
        node: &Node,
        (contract, factory): (ContractId, Option<ContractId>),
        close_time: Duration,
        is_kept: bool,
    ) -> Result<Self, Failure> {
        let store = node.store();
        Ok(Self {
            address: on_this_machine(address),
            token,
            contract,
            factory,
            wallets: Sandbox::wallets(store.network()).map_err(SandboxNetworkError::from)?,
            network_passphrase: store.network().passphrase().to_owned(),
            close_time,
            directory: is_kept.then(|| store.directory().to_owned()),
        })
    }

    /// Returns commands to paste: short enough for a terminal of 80 columns, but for the token.
    pub fn text(&self) -> String {
        let Self { address, token, contract, .. } = self;
        let pace = match self.close_time.as_millis() {
            1000 => "one ledger a second".to_owned(),
            milliseconds => format!("one ledger every {milliseconds} ms"),
        };
        let stays = match &self.directory {
            Some(directory) => format!("Everything stays in {}.", directory.display()),
            None => "All data is removed at the end, unless --data-dir is given.".to_owned(),
        };
        let path = directory_to_add().map(|it| format!("export PATH={}:$PATH\n", quoted(&it)));
        let base = self.base_to_name().map(|it| format!("export ORRERY_BASE={it}\n"));
        // Told of a network whose exchange opens pools.
        let (follows, pools) = match self.factory {
            Some(_) => (
                format!(
                    "Its exchange opens pools now and then: the project {POOLS} follows them all.\n"
                ),
                format!(
                    "orrery query 'select contract_id, sum(sold) as sold from {POOLS}.swap group by 1'\n"
                ),
            ),
            None => Default::default(),
        };
        format!(
            "Orrery runs a network of its own, {pace}. Ctrl-C stops it.
{stays}
Its site: http://{address}/
{follows}
Try, in another terminal:
{}{}export ORRERY_JWT={token}
export CONTRACT={contract}
orrery tables
orrery query 'select \"from\", \"to\", amount from {EVENTS}.transfer limit 3'
{pools}orrery watch orders --contract $CONTRACT
echo \"http://{address}/#token=$ORRERY_JWT\"    # the site, with this token

More: http://{address}/docs
",
            path.unwrap_or_default(),
            base.unwrap_or_default(),
        )
    }

    /// Prints the facts as one line of JSON.
    pub fn print_json(&self) -> Result<(), Failure> {
        let Self { address, token, contract, .. } = self;
        let SandboxWallets { smart_account, legacy, v1, credential } = &self.wallets;
        let credential: String = credential.iter().map(|byte| format!("{byte:02x}")).collect();
        output::print_json(&json!({
            "site": format!("http://{address}/"),
            "base": base_of(*address),
            "token": token,
            "contract": contract.to_string(),
            "factory": self.factory.map(|factory| factory.to_string()),
            "data_dir": self.directory,
            "rpc": format!("http://{address}/rpc"),
            "network_passphrase": self.network_passphrase,
            "friendbot": format!("http://{address}/friendbot"),
            "smart_accounts": [smart_account.to_string()],
            "passkey_wallets": [legacy.to_string(), v1.to_string()],
            "credential": credential,
        }))
    }

    /// Returns the base address if commands would not find it by themselves.
    fn base_to_name(&self) -> Option<String> {
        let own = base_of(self.address);
        let others = installed::machine().settings.exists();
        (own != DEFAULT_BASE || others).then_some(own)
    }
}

/// Returns the directory of this program if a shell does not find it by its name.
fn directory_to_add() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let directories = env::var_os("PATH").unwrap_or_default();
    let is_this = |path: PathBuf| path.canonicalize().is_ok_and(|found| found == program);
    let is_found = env::split_paths(&directories).any(|it| is_this(it.join("orrery")));
    if is_found { None } else { program.parent().map(Path::to_owned) }
}

/// Quotes a path for a shell, if that is needed.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+@".contains(letter);
    match text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_where_a_shell_needs_it() {
        for (path, expected) in [
            ("/opt/orrery-0.1/bin", "/opt/orrery-0.1/bin"),
            ("/home/a b/it's", r"'/home/a b/it'\''s'"),
            ("/a:$b", "'/a:$b'"),
        ] {
            assert_eq!(quoted(Path::new(path)), expected);
        }
    }
}
