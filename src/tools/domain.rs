//! Host rules: `example.com`, `*.example.com`, `*`.

use std::net::Ipv6Addr;

use reqwest::Url;

/// The hosts that a rule covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    All,
    Exact(String),
    /// Every subdomain of this host, but not the host itself.
    Subdomains(String),
}

/// The error for a text that is not a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a host; write example.com, *.example.com or *, without a port")]
pub struct InvalidHost(String);

impl Domain {
    /// Parses the text after `domain:`.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidHost> {
        let named = match text.strip_prefix("*.") {
            _ if text == "*" => return Ok(Self::All),
            Some(parent) => canonical_host(parent).map(Self::Subdomains),
            None => canonical_host(text).map(Self::Exact),
        };
        named.ok_or_else(|| InvalidHost(text.to_owned()))
    }

    /// True if the rule covers `host`, which is in the form that [`host_of`] returns.
    pub(super) fn covers(&self, host: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exact(name) => name == host,
            Self::Subdomains(parent) => {
                host.strip_suffix(parent.as_str()).is_some_and(|rest| rest.ends_with('.'))
            }
        }
    }
}

/// The host of an address in canonical form: lower case, ASCII, no trailing dot, IPv4 as four
/// decimal numbers, also within IPv6. So `EXAMPLE.com.`, `xn--…`, `0x7f.1` and `[::ffff:127.0.0.1]`
/// cannot evade a rule.
pub(super) fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let v6 = v6.and_then(|host| host.parse::<Ipv6Addr>().ok());
    match v6.and_then(|address| address.to_ipv4_mapped()) {
        Some(v4) => v4.to_string(),
        None => host.to_owned(),
    }
}

/// Returns a host in canonical form. `None` if the text is not a host.
pub(super) fn canonical_host(host: &str) -> Option<String> {
    let is_v6 = host.matches(':').count() > 1 && !host.starts_with('[');
    let host = if is_v6 { format!("[{host}]") } else { host.to_owned() };
    let odd = |letter: char| letter.is_whitespace() || "/\\@?#*%,".contains(letter);
    if host.contains(odd) || (host.contains(':') && !host.ends_with(']')) {
        return None;
    }
    let url = Url::parse(&format!("http://{host}/")).ok()?;
    Some(host_of(&url)).filter(|host| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if a rule covers the host of an address.
    fn covers(rule: &str, address: &str) -> bool {
        let url = Url::parse(address).expect("an address");
        Domain::parse(rule).expect("a rule").covers(&host_of(&url))
    }

    #[test]
    fn equivalent_spellings_of_a_host_match_the_same_rule() {
        for (rule, address) in [
            ("example.com", "https://example.com/a"),
            ("Example.COM.", "http://eXample.com:8080"),
            ("example.com", "https://EXAMPLE.com./"),
            ("example.com", "https://user@example.com/"),
            ("example.com", "https://ex%61mple.com/"),
            ("bücher.example", "https://xn--bcher-kva.example"),
            ("xn--bcher-kva.example", "https://BÜCHER.example"),
            ("xn--bcher-kva.example", "https://BÜCHER.example:8080/?ü#ü"),
            ("*.bücher.example", "https://Ärzte.a.xn--bcher-kva.example"),
            ("bücher.example", "https://bu\u{308}cher.example"),
            ("bu\u{308}cher.example", "https://xn--bcher-kva.example"),
            ("bücher.example", "https://bücher\u{3002}example"),
            ("example.com", "https://ｅｘａｍｐｌｅ．ｃｏｍ/"),
            ("βόλος.example", "https://xn--nxasmm1c.example"),
            ("βόλοσ.example", "https://xn--nxasmq6b.example"),
            ("127.0.0.1", "http://2130706433/"),
            ("127.0.0.1", "http://0x7f.1/"),
            ("127.0.0.1", "http://[::ffff:127.0.0.1]/"),
            ("127.0.0.1", "http://[0:0:0:0:0:ffff:7f00:1]:80/"),
            ("::ffff:127.0.0.1", "http://127.1/"),
            ("::1", "http://[0:0::1]/"),
            ("[::1]", "http://[::1]:80/"),
            ("*.example.com", "https://a.b.example.com"),
            ("*", "https://anything.example"),
        ] {
            assert!(covers(rule, address), "{rule} and {address}");
        }
    }

    #[test]
    fn similar_looking_hosts_are_not_covered() {
        for (rule, address) in [
            ("good.com", "https://good.com@evil.com/"),
            ("good.com", "https://good.com.evil.com/"),
            ("good.com", "https://evil.com/good.com"),
            ("good.com", "https://evil.com#good.com"),
            ("good.com", "https://evil.com\\@good.com/"),
            ("good.com", "https://notgood.com"),
            ("good.com", "https://www.good.com"),
            ("good.com", "https://gооd.com"),
            ("*.good.com", "https://good.com"),
            ("*.good.com", "https://notgood.com"),
            ("*.good.com", "https://good.com.evil.com"),
        ] {
            assert!(!covers(rule, address), "{rule} and {address}");
        }
    }

    #[test]
    fn a_domain_rule_without_a_valid_host_is_rejected() {
        for text in ["", "*.", "a b", "example.com:8080", "a/b", "x@y", "*x.com", "a.*", "[::1"] {
            assert!(Domain::parse(text).is_err(), "{text}");
        }
    }
}
