//! Selects the HTTP proxy for the service from environment variables.

use std::fmt;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;

use crate::text::without_quotes;

/// The proxies from the environment, and the hosts exempt from them. An invalid address matters
/// only if it is used: desktops set variables for all programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<ProxyVariable>,
    https: Option<ProxyVariable>,
    except: Vec<String>,
}

/// A variable with its value, which is never displayed.
#[derive(Clone, PartialEq, Eq)]
struct ProxyVariable {
    name: &'static str,
    value: String,
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
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &&'static str| {
            let value = variable(name).map(|value| without_quotes(&value).to_owned());
            let value = value.filter(|value| !value.is_empty());
            value.map(|value| ProxyVariable { name, value })
        };
        // In a CGI program, HTTP_PROXY may come from a client's request header.
        let is_cgi = variable("REQUEST_METHOD").is_some();
        let named = |names: &[&'static str]| {
            let mut names = names.iter().filter(|name| !(is_cgi && **name == "HTTP_PROXY"));
            names.find_map(value)
        };
        let all = named(&ALL);
        let except = NONE.iter().find_map(value).map(|named| named.value).unwrap_or_default();
        let except = except.split([',', ' ']).map(str::trim).filter(|entry| !entry.is_empty());
        Self {
            http: named(&HTTP).or_else(|| all.clone()),
            https: named(&HTTPS).or(all),
            except: except.map(str::to_ascii_lowercase).collect(),
        }
    }

    /// The proxy to use for `url`. Loopback addresses never use one.
    ///
    /// # Errors
    /// The variable that applies to `url` has an invalid proxy address.
    pub fn proxy_for(&self, url: &Url) -> Result<Option<Proxy>, BadProxy> {
        let named = if url.scheme() == "https" { &self.https } else { &self.http };
        let named = named.as_ref().filter(|_| !is_loopback(url) && !self.is_exempt(url));
        named.map(ProxyVariable::parse).transpose()
    }

    /// The passwords, both encoded and decoded, for redaction.
    pub fn secrets(&self) -> Vec<String> {
        let named = [&self.http, &self.https].into_iter().flatten();
        let mut secrets: Vec<String> =
            named.filter_map(|named| password_in(&named.value)).flatten().collect();
        secrets.dedup();
        secrets
    }

    fn is_exempt(&self, url: &Url) -> bool {
        let host = strip_brackets(url.host_str().unwrap_or_default());
        // A final dot only marks the name as complete.
        let host = host.strip_suffix('.').unwrap_or(host);
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
    let entry = entry.strip_suffix('.').unwrap_or(entry);
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

impl ProxyVariable {
    fn parse(&self) -> Result<Proxy, BadProxy> {
        let wrong = |reason: String| BadProxy { variable: self.name, reason };
        let text = &self.value;
        let full = if text.contains("://") { text.clone() } else { format!("http://{text}") };
        let mut url = Url::parse(&full).map_err(|error| wrong(error.to_string()))?;
        if url.scheme() == "socks" {
            // GNOME's scheme. The proxy resolves the host names, which may be known only to it.
            let _both_are_schemes_without_a_port = url.set_scheme("socks5h");
        }
        if !SCHEMES.contains(&url.scheme()) || url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("it is not the address of an HTTP or SOCKS proxy".to_owned()));
        }
        Ok(Proxy { url, variable: self.name })
    }
}

impl fmt::Debug for ProxyVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parse() {
            Ok(proxy) => write!(f, "{proxy}"),
            Err(error) => f.write_str(error.variable),
        }
    }
}

/// The password in an address, which may be invalid: decoded, and as written.
fn password_in(address: &str) -> Option<[String; 2]> {
    let (login, _) = address.rsplit_once('@')?;
    let login = login.split_once("://").map_or(login, |(_, login)| login);
    let (_, written) = login.split_once(':').filter(|(_, written)| !written.is_empty())?;
    Some([percent_decode(written), written.to_owned()])
}

impl Proxy {
    /// The address of the proxy, with user and password.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The error text for a refused tunnel.
    pub(super) fn tunnel_error_message(&self, reason: &str) -> String {
        format!("the proxy {self}, which {} names, refuses the connection: {reason}", self.variable)
    }

    /// The error text for a 407 of this proxy.
    pub(super) fn auth_error_message(&self) -> String {
        let how = match self.url.password() {
            None => "wants a user and password; put them",
            Some(_) => "does not accept the user and password it was given; correct them",
        };
        format!("the proxy {self} {how} in {}", self.variable)
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

/// User and password of a URL, encoded for a header.
pub(super) fn encoded_login(url: &Url) -> Option<String> {
    let (user, password) = (url.username(), url.password().unwrap_or_default());
    let is_set = !(user.is_empty() && password.is_empty());
    is_set
        .then(|| STANDARD.encode(format!("{}:{}", percent_decode(user), percent_decode(password))))
}

/// Decodes percent encoding, such as `%20`.
pub(super) fn percent_decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}
