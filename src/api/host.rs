//! The names of hosts: by which one a request names this service, and which are names of its own machine.

use std::net::IpAddr;

use warp::http::HeaderMap;
use warp::http::header::HOST;

/// Domain that the public DNS never has, by which containers name the machine that they run on.
const PRIVATE_DOMAIN: &str = ".internal";

/// Whether a request names this service by an address or as `localhost`. A page of another origin
/// that makes its own name resolve to this machine sends that name.
pub(super) fn is_asked_by_address(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().all(|value| {
        let Some(host) = value.to_str().ok() else { return false };
        let name = name_of(host);
        address_of(name).is_some() || name.trim_end_matches('.').eq_ignore_ascii_case("localhost")
    })
}

/// Whether a name, in lower case, can be one of this machine but not of a page from elsewhere: an
/// address, `localhost` or a name below it, a name without a domain, or one that the public DNS does
/// not have.
pub(super) fn is_of_this_machine(name: &str) -> bool {
    let bare = name.strip_suffix('.').unwrap_or(name);
    let is_local = |name: &str| {
        !name.contains('.') || name.ends_with(".localhost") || name.ends_with(PRIVATE_DOMAIN)
    };
    address_of(bare).is_some() || !bare.is_empty() && !bare.contains(':') && is_local(bare)
}

/// Whether an origin is a page of this machine, or an extension of the browser, which is a program on
/// this machine.
pub(super) fn is_near(origin: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    if scheme.ends_with("-extension") {
        return true;
    }
    let name = name_of(authority);
    let is_local = match address_of(name) {
        Some(address) => address.is_loopback(),
        None => name == "localhost" || name.ends_with(".localhost"),
    };
    matches!(scheme, "http" | "https") && is_local
}

/// Whether an origin has the host by which the request names this service.
pub(super) fn is_same_host(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok());
    host.is_some_and(|host| name_of(host).eq_ignore_ascii_case(host_of_origin(origin)))
}

/// Returns the name in an origin, without scheme and port.
pub(super) fn host_of_origin(origin: &str) -> &str {
    name_of(origin.split_once("://").map_or(origin, |(_, authority)| authority))
}

/// Returns a host without its port, which may be `*` in a setting.
pub(super) fn name_of(host: &str) -> &str {
    let is_port = |port: &str| port == "*" || port.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    }
}

fn address_of(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_asked_by_address_or_as_localhost() {
        let asked = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            is_asked_by_address(&headers)
        };
        for host in [
            "127.0.0.1:8484",
            "127.0.0.1",
            "localhost",
            "LOCALHOST:1",
            "[::1]:8484",
            "[::1]",
            "localhost.",
        ] {
            assert!(asked(host), "{host}");
        }
        for host in
            ["evil.example", "evil.example:8484", "localhost.evil.example", "", "127.0.0.1.nip.io"]
        {
            assert!(!asked(host), "{host}");
        }
        assert!(is_asked_by_address(&HeaderMap::new()), "HTTP/1.0 has no host");
    }

    #[test]
    fn names_of_this_machine_are_those_that_no_page_from_elsewhere_has() {
        for name in [
            "127.0.0.1",
            "[::1]",
            "192.0.2.7",
            "localhost",
            "localhost.",
            "app.localhost",
            "orrery",
            "host.docker.internal",
        ] {
            assert!(is_of_this_machine(name), "{name}");
        }
        for name in [
            "",
            ".",
            "evil.example",
            "evil.example.",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "notlocalhost.org",
            "internal.example",
            "a:b",
        ] {
            assert!(!is_of_this_machine(name), "{name}");
        }
    }

    #[test]
    fn near_pages_are_those_of_this_machine() {
        for origin in [
            "http://localhost:5173",
            "https://localhost",
            "http://app.localhost:3000",
            "http://127.0.0.1:8000",
            "http://127.4.4.4",
            "http://[::1]:3000",
            "chrome-extension://bcacfldlkkdogcmkkibnjlakofdplcbk",
        ] {
            assert!(is_near(origin), "{origin}");
        }
        for origin in [
            "null",
            "",
            "http://localhost.evil.example",
            "http://127.0.0.1.nip.io",
            "http://192.0.2.7",
            "https://evil.example",
            "file://",
            "localhost",
        ] {
            assert!(!is_near(origin), "{origin}");
        }
    }

    #[test]
    fn pages_of_the_same_host_are_told_by_its_name() {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "10.0.0.5:8484".parse().unwrap());
        assert!(is_same_host("http://10.0.0.5:3000", &headers));
        assert!(!is_same_host("http://10.0.0.6:3000", &headers));
        assert!(!is_same_host("http://10.0.0.5", &HeaderMap::new()));
    }
}
