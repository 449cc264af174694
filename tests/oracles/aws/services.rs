//! The services of AWS, played on loopback, and a proxy that lets nothing through.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One server for all services.
pub(crate) struct Services {
    pub(crate) url: String,
    pub(crate) proxy: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Services {
    pub(crate) async fn start() -> Self {
        let seen = Arc::default();
        let url = listen(Arc::clone(&seen)).await;
        let proxy = listen(Arc::clone(&seen)).await;
        Self { url, proxy, seen }
    }

    /// The key and the session with which Bedrock was asked.
    pub(crate) fn asked(&self) -> Option<(String, String)> {
        let seen = self.seen.lock().expect("no thread panicked");
        let request = seen.iter().find(|request| request.starts_with("POST /model/"))?;
        let after = |mark: &str, end: char| {
            let rest = request.split_once(mark).map(|(_, rest)| rest)?;
            rest.split_once(end).map(|(value, _)| value.trim().to_owned())
        };
        let session = after("x-amz-security-token: ", '\r').unwrap_or_default();
        Some((after("Credential=", '/')?, session))
    }

    /// The hosts that were asked for through the proxy.
    pub(crate) fn tunnels(&self) -> BTreeSet<String> {
        let seen = self.seen.lock().expect("no thread panicked");
        let targets = seen.iter().filter_map(|request| request.strip_prefix("CONNECT "));
        targets.filter_map(|rest| Some(rest.split_once(':')?.0.to_owned())).collect()
    }
}

async fn listen(seen: Arc<Mutex<Vec<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, Arc::clone(&seen)));
        }
    });
    url
}

/// Answers one request, whose body has a length.
async fn serve(mut socket: TcpStream, seen: Arc<Mutex<Vec<String>>>) {
    let mut bytes = Vec::new();
    let request = loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_ascii_lowercase();
            let length = length.split_once("content-length: ").and_then(|(_, rest)| {
                rest.split("\r\n").next().and_then(|length| length.trim().parse().ok())
            });
            if body.len() >= length.unwrap_or(0) {
                break text;
            }
        }
        match socket.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    };
    // Names of headers are not of one case.
    let request = request.replace("X-Amz-Security-Token", "x-amz-security-token");
    let (status, body) = answer(&request);
    seen.lock().expect("no thread panicked").push(request);
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\n\
         x-aws-ec2-metadata-token-ttl-seconds: 21600\r\n"
    );
    // The client may have given up.
    let _ = socket.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes()).await;
}

fn answer(request: &str) -> (u16, String) {
    let path = request.split(' ').nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let keys = |id: &str| {
        format!(
            r#"{{"AccessKeyId": "{id}", "SecretAccessKey": "secret-0001", "Token": "session-{id}",
                "Expiration": "2099-01-01T00:00:00Z", "Code": "Success", "Type": "AWS-HMAC",
                "LastUpdated": "2020-01-01T00:00:00Z"}}"#
        )
    };
    let has = |text: &str| request.contains(text);
    match path {
        "/" => sts(request),
        "/federation/credentials" if has("sso_bearer_token: login-0001") => sso("ASIASSO"),
        "/federation/credentials" if has("sso_bearer_token: login-0002") => sso("ASIARENEWED"),
        "/token" if has("\"refreshToken\":\"refresh-0001\"") => (
            200,
            r#"{"accessToken": "login-0002", "expiresIn": 3600, "refreshToken": "refresh-0002",
                "tokenType": "Bearer"}"#
                .to_owned(),
        ),
        "/pod" if has("uthorization: token-of-the-pod") => (200, keys("ASIAPOD")),
        "/latest/api/token" => (200, "token-of-the-instance".to_owned()),
        "/latest/meta-data/iam/security-credentials/" => (200, "the-role".to_owned()),
        "/latest/meta-data/iam/security-credentials/the-role" => (200, keys("ASIAINSTANCE")),
        _ if path.starts_with("/model/") => {
            (400, r#"{"message": "this is not a model"}"#.to_owned())
        }
        _ => (404, "{}".to_owned()),
    }
}

fn sso(id: &str) -> (u16, String) {
    let body = format!(
        r#"{{"roleCredentials": {{"accessKeyId": "{id}", "secretAccessKey": "secret-0001",
            "sessionToken": "session-{id}", "expiration": 4070908800000}}}}"#
    );
    (200, body)
}

/// The id of the key names the role, and the identity that assumed it.
fn sts(request: &str) -> (u16, String) {
    let field = |name: &str| {
        let (_, rest) = request.split_once(&format!("{name}="))?;
        Some(rest.split('&').next().unwrap_or_default().to_owned())
    };
    let action = field("Action").unwrap_or_default();
    let role = field("RoleArn").unwrap_or_default();
    let role = role.rsplit("%2F").next().unwrap_or_default().to_uppercase();
    let by = match action.as_str() {
        "AssumeRole" => field("Credential").map_or_else(String::new, |credential| {
            credential.split('/').next().unwrap_or_default().to_owned()
        }),
        _ => field("WebIdentityToken").unwrap_or_default().replace('-', "").to_uppercase(),
    };
    let external = field("ExternalId").unwrap_or_default();
    let id = format!("ASIA{role}BY{by}{external}");
    let body = format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result>\
         <Credentials><AccessKeyId>{id}</AccessKeyId>\
         <SecretAccessKey>secret-0001</SecretAccessKey><SessionToken>session-{id}</SessionToken>\
         <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>\
         <AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn><AssumedRoleId>r:s</AssumedRoleId></AssumedRoleUser>\
         </{action}Result></{action}Response>"
    );
    (200, body)
}
