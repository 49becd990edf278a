//! The ports of a core that is about to run, for requests for entries and for transactions: turned
//! on when they have clients, and published to them.

use std::net::{Ipv4Addr, TcpListener};

use toml::Table;

use super::{Runner, config, write_config};
use crate::captive_core::error::CoreError;
use crate::captive_core::process::Launcher;
use crate::captive_core::query::{PublishedPorts, Reach};

impl Runner {
    /// Turns both ports on, unless they have no clients or the operator's file sets them, and
    /// publishes them until the returned value is dropped. Must be called just before core starts,
    /// because a free port may soon be taken by another process.
    pub(super) fn open_ports(
        &self,
        launcher: &Launcher,
        table: &mut Table,
        protocol: u32,
    ) -> Result<Option<PublishedPorts>, CoreError> {
        let Some(query) = &self.plan.settings.query else { return Ok(None) };
        let no_port = |error| {
            CoreError::Other(format!(
                "no port is free for stellar-core's ledger entry queries: {error}"
            ))
        };
        let port = match config::query_port(table) {
            Some(port) => port,
            None if Reach::is_too_old(protocol) => 0,
            None => {
                let port = free_port(config::http_port(table)).map_err(no_port)?;
                config::set_query_port(table, port);
                write_config(&launcher.config, table)?;
                port
            }
        };
        // A port that the operator's file turns off stays off.
        if config::http_port(table) == 0 && !self.plan.own.contains_key("HTTP_PORT") {
            config::set_http_port(table, free_port(port).map_err(no_port)?);
            write_config(&launcher.config, table)?;
        }
        Ok(Some(query.publish(Reach::of(port, protocol), config::http_port(table))))
    }
}

/// Returns a port on this machine that is free and differs from `other`.
fn free_port(other: u16) -> std::io::Result<u16> {
    // Sockets that stay bound until the end, so that their ports are not offered again.
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
    fn a_free_port_can_be_bound() {
        let port = free_port(0).unwrap();
        let other = free_port(port).unwrap();
        assert!(port != 0 && other != port);
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, other)).is_ok());
    }
}
