//! The table of profiles.

/// Files and variables of a user. `{url}` is the address of the services, `{home}` the home folder.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) config: &'static str,
    pub(crate) credentials: &'static str,
    /// The file of the login of the session `corp`.
    pub(crate) login: &'static str,
    pub(crate) variables: &'static [(&'static str, &'static str)],
    /// Whether variables point all services at loopback.
    pub(crate) is_local: bool,
    /// The id of the key with which Bedrock is asked.
    pub(crate) id: Option<&'static str>,
}

const NONE: Case = Case {
    name: "",
    config: "",
    credentials: "",
    login: "",
    variables: &[],
    is_local: true,
    id: None,
};

const BASE: &str = "[base]\naws_access_key_id = AKIABASE\naws_secret_access_key = secret-0001\n";
const CI: &[(&str, &str)] = &[("AWS_PROFILE", "ci")];
const CORP: &str = "[profile ci]\nsso_session = corp\nsso_account_id = 123\nsso_role_name = dev\n\
                    [sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.example\n";
const KEYS: (&str, &str) = ("AWS_ACCESS_KEY_ID", "AKIAVARIABLE");
const SECRET: (&str, &str) = ("AWS_SECRET_ACCESS_KEY", "secret-0001");
const POD: (&str, &str) = ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "token-of-the-pod");
const FIPS: (&str, &str) = ("AWS_USE_FIPS_ENDPOINT", "true");
const DUAL: (&str, &str) = ("AWS_USE_DUALSTACK_ENDPOINT", "true");

pub(crate) const CASES: &[Case] = &[
    Case { name: "nothing", ..NONE },
    Case {
        name: "keys in variables outrank the profile",
        credentials: BASE,
        variables: &[KEYS, SECRET, ("AWS_PROFILE", "base")],
        id: Some("AKIAVARIABLE"),
        ..NONE
    },
    Case {
        name: "a session in a variable",
        variables: &[KEYS, SECRET, ("AWS_SESSION_TOKEN", "session-0001")],
        id: Some("AKIAVARIABLE"),
        ..NONE
    },
    Case {
        name: "half a key",
        credentials: BASE,
        variables: &[KEYS, ("AWS_PROFILE", "base")],
        id: Some("AKIABASE"),
        ..NONE
    },
    Case {
        name: "the credentials file outranks the configuration",
        config: "[profile ci]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = x\n",
        credentials: "[ci]\naws_access_key_id = AKIACI\naws_secret_access_key = secret-0001\n",
        variables: CI,
        id: Some("AKIACI"),
        ..NONE
    },
    Case {
        name: "comments and upper case",
        config: "# one\n; two\n[profile ci] # three\nAWS_ACCESS_KEY_ID=AKIACI ; four\n\
                 Aws_Secret_Access_Key = secret#0001 # five\n",
        variables: CI,
        id: Some("AKIACI"),
        ..NONE
    },
    Case {
        name: "a section of the configuration without the word profile is none",
        config: "[ci]\naws_access_key_id = AKIACI\naws_secret_access_key = secret-0001\n",
        variables: CI,
        ..NONE
    },
    Case {
        name: "profile default outranks default",
        config: "[default]\naws_access_key_id = AKIAONE\naws_secret_access_key = secret-0001\n\
                 [profile default]\naws_access_key_id = AKIATWO\naws_secret_access_key = secret-0001\n",
        id: Some("AKIATWO"),
        ..NONE
    },
    Case {
        name: "a profile that does not exist",
        config: CORP,
        variables: &[("AWS_PROFILE", "x")],
        ..NONE
    },
    Case {
        name: "files elsewhere",
        credentials: BASE,
        variables: &[
            ("AWS_CONFIG_FILE", "~/.aws/credentials"),
            ("AWS_SHARED_CREDENTIALS_FILE", "{home}/.aws/credentials"),
            ("AWS_PROFILE", "base"),
        ],
        id: Some("AKIABASE"),
        ..NONE
    },
    Case {
        name: "a role of another profile",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = base\nexternal_id = e1\n",
        credentials: BASE,
        variables: CI,
        id: Some("ASIAONEBYAKIABASEe1"),
        ..NONE
    },
    Case {
        name: "a role by a role",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/two\nsource_profile = one\n\
                 [profile one]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = base\n",
        credentials: BASE,
        variables: CI,
        id: Some("ASIATWOBYASIAONEBYAKIABASE"),
        ..NONE
    },
    Case {
        name: "keys of a source outrank its role",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/two\nsource_profile = base\n\
                 [profile base]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = nowhere\n",
        credentials: BASE,
        variables: CI,
        id: Some("ASIATWOBYAKIABASE"),
        ..NONE
    },
    Case {
        name: "a role of the profile itself",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = ci\n\
                 aws_access_key_id = AKIACI\naws_secret_access_key = secret-0001\n",
        variables: CI,
        id: Some("ASIAONEBYAKIACI"),
        ..NONE
    },
    Case {
        name: "roles in a circle",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = b\n\
                 [profile b]\nrole_arn = arn:aws:iam::1:role/two\nsource_profile = ci\n",
        variables: CI,
        ..NONE
    },
    Case {
        name: "two sources",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = base\n\
                 credential_source = Ec2InstanceMetadata\n",
        credentials: BASE,
        variables: CI,
        ..NONE
    },
    Case {
        name: "no source",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\n",
        variables: CI,
        ..NONE
    },
    Case {
        name: "a role of the container",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\ncredential_source = EcsContainer\n",
        variables: &[
            ("AWS_PROFILE", "ci"),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "{url}/pod"),
            POD,
        ],
        id: Some("ASIAONEBYASIAPOD"),
        ..NONE
    },
    Case {
        name: "a role of variables that are not set",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\ncredential_source = Environment\n",
        variables: CI,
        ..NONE
    },
    Case {
        name: "a web identity in the profile",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\nweb_identity_token_file = {home}/token\n",
        variables: CI,
        id: Some("ASIAONEBYTOKENOFTHEPOD"),
        ..NONE
    },
    Case {
        name: "a web identity without a role",
        config: "[profile ci]\nweb_identity_token_file = {home}/token\n\
                 aws_access_key_id = AKIACI\naws_secret_access_key = secret-0001\n",
        variables: CI,
        ..NONE
    },
    Case {
        name: "a web identity in variables",
        variables: &[
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "{home}/token"),
            ("AWS_ROLE_ARN", "arn:aws:iam::1:role/one"),
        ],
        id: Some("ASIAONEBYTOKENOFTHEPOD"),
        ..NONE
    },
    Case {
        name: "a program",
        config: "[profile ci]\ncredential_process = echo '{\"Version\": 1, \"AccessKeyId\": \
                 \"AKIAPROGRAM\", \"SecretAccessKey\": \"secret-0001\"}'\n",
        variables: CI,
        id: Some("AKIAPROGRAM"),
        ..NONE
    },
    Case {
        name: "a program of another version",
        config: "[profile ci]\ncredential_process = echo '{\"Version\": 2, \"AccessKeyId\": \
                 \"AKIAPROGRAM\", \"SecretAccessKey\": \"secret-0001\"}'\n",
        variables: CI,
        ..NONE
    },
    Case { name: "no login", config: CORP, variables: CI, ..NONE },
    Case {
        name: "a login",
        config: CORP,
        login: r#"{"accessToken": "login-0001", "expiresAt": "2099-01-01T00:00:00Z"}"#,
        variables: CI,
        id: Some("ASIASSO"),
        ..NONE
    },
    Case {
        name: "a login that has ended",
        config: CORP,
        login: r#"{"accessToken": "login-0001", "expiresAt": "2020-01-01T00:00:00Z"}"#,
        variables: CI,
        ..NONE
    },
    Case {
        name: "a login without its end",
        config: CORP,
        login: r#"{"accessToken": "login-0001"}"#,
        variables: CI,
        ..NONE
    },
    Case {
        name: "a login that is renewed",
        config: CORP,
        login: r#"{"accessToken": "login-0001", "expiresAt": "2020-01-01T00:00:00Z",
            "clientId": "c", "clientSecret": "s", "refreshToken": "refresh-0001",
            "registrationExpiresAt": "2099-01-01T00:00:00Z"}"#,
        variables: CI,
        id: Some("ASIARENEWED"),
        ..NONE
    },
    Case {
        name: "a login whose registration has ended",
        config: CORP,
        login: r#"{"accessToken": "login-0001", "expiresAt": "2020-01-01T00:00:00Z",
            "clientId": "c", "clientSecret": "s", "refreshToken": "refresh-0001",
            "registrationExpiresAt": "2020-01-01T00:00:00Z"}"#,
        variables: CI,
        ..NONE
    },
    Case {
        name: "a role of a login",
        config: "[profile top]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = ci\n\
                 [profile ci]\nsso_session = corp\nsso_account_id = 123\nsso_role_name = dev\n\
                 [sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.example\n",
        login: r#"{"accessToken": "login-0001", "expiresAt": "2099-01-01T00:00:00Z"}"#,
        variables: &[("AWS_PROFILE", "top")],
        id: Some("ASIAONEBYASIASSO"),
        ..NONE
    },
    Case {
        name: "a session that does not exist",
        config: "[profile ci]\nsso_session = other\nsso_account_id = 123\nsso_role_name = dev\n",
        variables: CI,
        ..NONE
    },
    Case {
        name: "a profile that contradicts its session",
        config: "[profile ci]\nsso_session = corp\nsso_account_id = 123\nsso_role_name = dev\n\
                 sso_region = us-east-1\n\
                 [sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.example\n",
        login: r#"{"accessToken": "login-0001", "expiresAt": "2099-01-01T00:00:00Z"}"#,
        variables: CI,
        ..NONE
    },
    Case {
        name: "a login without a role",
        config: "[profile ci]\nsso_session = corp\nsso_account_id = 123\n\
                 [sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.example\n",
        variables: CI,
        ..NONE
    },
    Case {
        name: "a login of aws login",
        config: "[profile ci]\nlogin_session = arn:aws:iam::1:user/a\n\
                 aws_access_key_id = AKIACI\naws_secret_access_key = secret-0001\n",
        variables: CI,
        ..NONE
    },
    Case {
        name: "a pod on loopback",
        variables: &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "{url}/pod"), POD],
        id: Some("ASIAPOD"),
        ..NONE
    },
    Case {
        name: "the token of a pod is in a file",
        variables: &[
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "{url}/pod"),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "another"),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "{home}/token"),
        ],
        id: Some("ASIAPOD"),
        ..NONE
    },
    Case {
        name: "a pod on another host, unencrypted",
        variables: &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.7/pod"), POD],
        ..NONE
    },
    Case {
        name: "a pod on another host, encrypted",
        variables: &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "https://pod.example/pod"), POD],
        ..NONE
    },
    Case {
        name: "an instance",
        variables: &[
            ("AWS_EC2_METADATA_DISABLED", "false"),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "{url}"),
        ],
        id: Some("ASIAINSTANCE"),
        ..NONE
    },
    Case { name: "the public address", variables: &[KEYS, SECRET], is_local: false, ..NONE },
    Case {
        name: "validated cryptography",
        variables: &[KEYS, SECRET, FIPS],
        is_local: false,
        ..NONE
    },
    Case { name: "IPv6", variables: &[KEYS, SECRET, DUAL], is_local: false, ..NONE },
    Case { name: "both", variables: &[KEYS, SECRET, FIPS, DUAL], is_local: false, ..NONE },
    Case {
        name: "validated cryptography in China",
        variables: &[KEYS, SECRET, FIPS, ("AWS_REGION", "cn-north-1")],
        is_local: false,
        ..NONE
    },
    Case {
        name: "validated cryptography of GovCloud",
        variables: &[KEYS, SECRET, FIPS, ("AWS_REGION", "us-gov-west-1")],
        is_local: false,
        ..NONE
    },
    Case {
        name: "validated cryptography in the profile",
        config: "[default]\nuse_fips_endpoint = true\naws_access_key_id = AKIAONE\n\
                 aws_secret_access_key = secret-0001\n",
        is_local: false,
        ..NONE
    },
    Case {
        name: "the token service with validated cryptography",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = base\n",
        credentials: BASE,
        variables: &[("AWS_PROFILE", "ci"), FIPS],
        is_local: false,
        ..NONE
    },
    Case {
        name: "the token service of GovCloud with validated cryptography",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = base\n",
        credentials: BASE,
        variables: &[("AWS_PROFILE", "ci"), FIPS, ("AWS_REGION", "us-gov-east-1")],
        is_local: false,
        ..NONE
    },
    Case {
        name: "the portal with IPv6",
        config: CORP,
        login: r#"{"accessToken": "login-0001", "expiresAt": "2099-01-01T00:00:00Z"}"#,
        variables: &[("AWS_PROFILE", "ci"), DUAL],
        is_local: false,
        ..NONE
    },
    Case {
        name: "one address for all services",
        config: "[profile ci]\nrole_arn = arn:aws:iam::1:role/one\nsource_profile = base\n",
        credentials: BASE,
        variables: &[("AWS_PROFILE", "ci"), ("AWS_ENDPOINT_URL", "{url}")],
        is_local: false,
        id: Some("ASIAONEBYAKIABASE"),
        ..NONE
    },
    Case {
        name: "an address that contradicts validated cryptography",
        variables: &[KEYS, SECRET, FIPS, ("AWS_ENDPOINT_URL", "{url}")],
        is_local: false,
        ..NONE
    },
    Case {
        name: "an address of the profile",
        config: "[default]\nendpoint_url = https://profile.example\n",
        variables: &[KEYS, SECRET],
        is_local: false,
        ..NONE
    },
    Case {
        name: "an address of a section of services",
        config: "[default]\nendpoint_url = https://profile.example\nservices = own\n\
                 [services own]\nbedrock-runtime =\n  endpoint_url = https://section.example\n",
        variables: &[KEYS, SECRET],
        is_local: false,
        ..NONE
    },
    Case {
        name: "the address in a variable outranks that of the section",
        config: "[default]\nservices = own\n\
                 [services own]\nbedrock-runtime =\n  endpoint_url = https://section.example\n",
        variables: &[KEYS, SECRET, ("AWS_ENDPOINT_URL", "{url}")],
        is_local: false,
        id: Some("AKIAVARIABLE"),
        ..NONE
    },
    Case {
        name: "addresses that are ignored",
        variables: &[
            KEYS,
            SECRET,
            ("AWS_ENDPOINT_URL", "{url}"),
            ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"),
        ],
        is_local: false,
        ..NONE
    },
];
