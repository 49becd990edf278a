//! The ports of a core that is about to run, where it is asked for entries and takes transactions: turned on where
//! somebody asks, and told to them.

use std::net::{Ipv4Addr, TcpListener};

use toml::Table;

use super::{Runner, config, write_config};
use crate::source::core::error::CoreError;
use crate::source::core::process::Caller;
use crate::source::core::query::{Asked, Reach};

impl Runner {
    /// Turns both ports on, unless nobody asks or the operator's own file says where they are, and
    /// lets core be asked until what is returned is dropped. To be called just before core runs: a
    /// port is only likely to be free for a moment.
    pub(super) fn open_ports(
        &self,
        caller: &Caller,
        table: &mut Table,
        protocol: u32,
    ) -> Result<Option<Asked>, CoreError> {
        let Some(query) = &self.plan.settings.query else { return Ok(None) };
        let port = match config::query_port(table) {
            Some(port) => port,
            None if Reach::is_too_old(protocol) => 0,
            None => {
                let port = free_port(config::http_port(table)).map_err(CoreError::NoPort)?;
                config::set_query_port(table, port);
                write_config(&caller.config, table)?;
                port
            }
        };
        // Off by the operator's own file stays off.
        if config::http_port(table) == 0 && !self.plan.own.contains_key("HTTP_PORT") {
            config::set_http_port(table, free_port(port).map_err(CoreError::NoPort)?);
            write_config(&caller.config, table)?;
        }
        Ok(Some(query.ask_at(Reach::of(port, protocol), config::http_port(table))))
    }
}

/// A port on this machine that nobody listens at, and that is not `other`.
fn free_port(other: u16) -> std::io::Result<u16> {
    // Held until there is another, so that it is not found again.
    let mut taken = Vec::new();
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        if port != other {
            return Ok(port);
        }
        taken.push(listener);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_listened_at() {
        let port = free_port(0).unwrap();
        let other = free_port(port).unwrap();
        assert!(port != 0 && other != port);
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, other)).is_ok());
    }
}
