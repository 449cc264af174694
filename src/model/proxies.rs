//! Selects the HTTP proxy for the service from environment variables.

use std::fmt;
use std::net::IpAddr;

use reqwest::Url;

/// The proxies from the environment, and the hosts exempt from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    except: Vec<String>,
}

/// A proxy with optional user and password, which are never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    url: Url,
    /// The variable that configures it.
    variable: &'static str,
}

/// A variable with an invalid proxy address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the variable {variable} names no proxy: {reason}; write it like http://user:password@host:port"
)]
pub struct BadProxy {
    pub variable: &'static str,
    pub reason: String,
}

const HTTP: [&str; 2] = ["http_proxy", "HTTP_PROXY"];
const HTTPS: [&str; 2] = ["https_proxy", "HTTPS_PROXY"];
const ALL: [&str; 2] = ["all_proxy", "ALL_PROXY"];
const NONE: [&str; 2] = ["no_proxy", "NO_PROXY"];
const SCHEMES: [&str; 6] = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"];

impl Proxies {
    /// Reads the proxy variables. As in curl, lower-case names take precedence.
    ///
    /// # Errors
    /// The first variable with an invalid proxy address.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, BadProxy> {
        let value = |name: &&'static str| {
            let value = variable(name).map(|value| value.trim().to_owned());
            value.filter(|value| !value.is_empty()).map(|value| (*name, value))
        };
        // In a CGI program, HTTP_PROXY may come from a client's request header.
        let is_cgi = variable("REQUEST_METHOD").is_some();
        let named = |names: &[&'static str]| {
            let mut names = names.iter().filter(|name| !(is_cgi && **name == "HTTP_PROXY"));
            names.find_map(value).map(|(name, text)| Proxy::parse(name, &text)).transpose()
        };
        let all = named(&ALL)?;
        let except = NONE.iter().find_map(value).map(|(_, text)| text).unwrap_or_default();
        let except = except.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty());
        Ok(Self {
            http: named(&HTTP)?.or_else(|| all.clone()),
            https: named(&HTTPS)?.or(all),
            except: except.map(str::to_ascii_lowercase).collect(),
        })
    }

    /// The proxy to use for `url`. Loopback addresses never use one.
    pub fn proxy_for(&self, url: &Url) -> Option<&Proxy> {
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http };
        proxy.as_ref().filter(|_| !is_loopback(url) && !self.is_exempt(url))
    }

    /// The passwords, both encoded and decoded, for redaction.
    pub fn secrets(&self) -> Vec<String> {
        let mut secrets: Vec<String> =
            [&self.http, &self.https].into_iter().flatten().flat_map(Proxy::secrets).collect();
        secrets.dedup();
        secrets
    }

    fn is_exempt(&self, url: &Url) -> bool {
        let host = strip_brackets(url.host_str().unwrap_or_default());
        let port = url.port_or_known_default();
        self.except.iter().any(|entry| match entry.rsplit_once(':') {
            Some((name, number)) if !name.contains(':') || name.ends_with(']') => {
                number.parse().ok() == port && entry_matches(name, host)
            }
            Some(_) | None => entry_matches(entry, host),
        })
    }
}

/// True if an entry of `NO_PROXY` matches this host: by name, parent domain, address or network.
fn entry_matches(entry: &str, host: &str) -> bool {
    let entry = strip_brackets(entry);
    if entry == "*" || entry == host {
        return true;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return entry.split_once('/').is_some_and(|(network, bits)| {
            let network: Option<IpAddr> = network.parse().ok();
            network
                .zip(bits.parse().ok())
                .is_some_and(|(net, bits)| is_in_network(address, net, bits))
        });
    }
    let domain = entry.trim_start_matches('*').trim_start_matches('.');
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        && !domain.is_empty()
}

fn is_in_network(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let same = |one: u128, other: u128, width: u32| {
        let drop = width.saturating_sub(bits);
        one.checked_shr(drop).unwrap_or(0) == other.checked_shr(drop).unwrap_or(0)
    };
    match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            same(u32::from(one).into(), u32::from(other).into(), 32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => same(one.into(), other.into(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// Strips the brackets of an IPv6 address.
fn strip_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

pub(super) fn is_loopback(url: &Url) -> bool {
    let host = strip_brackets(url.host_str().unwrap_or_default());
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl Proxy {
    fn parse(variable: &'static str, text: &str) -> Result<Self, BadProxy> {
        let wrong = |reason: String| BadProxy { variable, reason };
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&full).map_err(|error| wrong(error.to_string()))?;
        if !SCHEMES.contains(&url.scheme()) || url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("it is not the address of an HTTP or SOCKS proxy".to_owned()));
        }
        Ok(Self { url, variable })
    }

    /// The address of the proxy, with user and password.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Converts the proxy for the HTTP client.
    pub(super) fn to_reqwest(&self) -> reqwest::Result<reqwest::Proxy> {
        reqwest::Proxy::all(self.url.clone())
    }

    /// The error text for a 407 of this proxy.
    pub(super) fn auth_error_message(&self) -> String {
        let how = match self.url.password() {
            None => "wants a user and password; put them",
            Some(_) => "does not accept the user and password it was given; correct them",
        };
        format!("the proxy {self} {how} in {}", self.variable)
    }

    fn secrets(&self) -> Vec<String> {
        let Some(written) = self.url.password() else { return Vec::new() };
        vec![percent_decode(written), written.to_owned()]
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.host_str().unwrap_or_default())?;
        self.url.port_or_known_default().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Decodes percent encoding, such as `%20`.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).filter(|_| *first == b'%').and_then(|hex| {
            let hex = std::str::from_utf8(hex).ok()?;
            u8::from_str_radix(hex, 16).ok()
        });
        bytes.push(hex.unwrap_or(*first));
        rest = if hex.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
