//! The table of credentials.

use super::{CredentialSet, Verbs};

/// Subcommands of git that connect to other repositories. The others run filters and hooks of the
/// checkout.
const GIT_VERBS: &[&str] =
    &["push", "fetch", "pull", "clone", "ls-remote", "remote", "lfs", "archive"];

/// Subcommands of npm and similar tools that connect to a registry. The others run scripts of the
/// checkout.
#[rustfmt::skip]
const NPM_VERBS: &[&str] = &[
    "access", "add", "audit", "ci", "config", "dedupe", "deprecate", "dist-tag", "fetch", "i",
    "info",
    "install", "login", "logout", "npm", "org", "outdated", "owner", "ping", "profile", "publish",
    "search", "show", "team", "token", "unpublish", "up", "update", "upgrade", "view", "whoami",
];

/// Subcommands of cargo that connect to a registry. The others run code of the checkout.
#[rustfmt::skip]
const CARGO_VERBS: &[&str] = &[
    "add", "fetch", "generate-lockfile", "info", "install", "login", "logout", "owner", "publish",
    "search", "update", "vendor", "yank",
];

/// Subcommands of `bundle` that connect to a registry. The others run code of the checkout.
const BUNDLE_VERBS: &[&str] =
    &["add", "cache", "config", "info", "install", "lock", "outdated", "package", "show", "update"];

/// Subcommands of `dotnet` and `nuget` that use credentials. The others run code of the checkout.
const NUGET_VERBS: &[&str] =
    &["add", "delete", "install", "list", "nuget", "package", "push", "restore", "search"];

/// Subcommands of installers for Python that run code of the checkout.
const PYTHON_VERBS: &[&str] = &["run", "shell", "exec", "test", "python"];

macro_rules! credentials {
    ($($programs:tt $($verbs:ident)? $(($($list:expr),*))? =>
        $variables:tt $places:tt $(writes $state:tt)?;)*) => {
        /// All known credentials.
        ///
        /// `.npmrc`, `.yarnrc.yml`, `.gradle/gradle.properties`, `.m2/settings.xml`,
        /// `.composer/auth.json`, `.bundle/config`, `.pip/pip.conf` and `.nuget/NuGet/NuGet.Config`
        /// may contain tokens too, but their tools do not start, or use another registry, if they
        /// cannot read them.
        pub(in super::super) static CREDENTIALS: &[CredentialSet] = &[$(CredentialSet {
            programs: &$programs,
            verbs: credentials!(@ $($verbs)? $(($($list),*))?),
            variables: &$variables,
            places: &$places,
            state: credentials!(@state $($state)?),
        },)*];
    };
    (@) => { Verbs::All };
    (@ $verbs:ident ($list:expr)) => { Verbs::$verbs($list) };
    (@state) => { &[] };
    (@state $state:tt) => { &$state };
}

credentials! {
    ["gh", "hub"] =>
        ["GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN",
         "GITHUB_PASSWORD"]
        ["@config/gh", "@config/hub", "$GH_CONFIG_DIR", "~/snap/gh"];
    ["glab"] =>
        ["GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "GITLAB_PRIVATE_TOKEN", "OAUTH_TOKEN"]
        ["@config/glab-cli", "$GLAB_CONFIG_DIR"];
    ["git"] Only(GIT_VERBS) =>
        ["GIT_ASKPASS", "GIT_CONFIG_*", "GIT_TOKEN", "GIT_PASSWORD", "GIT_AUTH_TOKEN"]
        ["~/.git-credentials", "~/.gitcookies", "@config/git/credentials", "~/.ssh", "~/.netrc", "$NETRC",
         "~/.gcm"];
    ["ssh", "scp", "sftp", "rsync", "ssh-add", "ssh-copy-id", "sshpass"] =>
        ["SSHPASS"]
        ["~/.ssh"];
    ["npm", "pnpm", "yarn", "bun"] Only(NPM_VERBS) =>
        ["NPM_TOKEN", "NPM_AUTH_TOKEN", "NODE_AUTH_TOKEN", "BUN_AUTH_TOKEN", "YARN_NPM_AUTH_*",
         "NPM_CONFIG_*", "npm_config_*"]
        ["$NPM_CONFIG_USERCONFIG", "$npm_config_userconfig"];
    ["cargo"] Only(CARGO_VERBS) =>
        ["CARGO_REGISTRY_TOKEN", "CARGO_REGISTRIES_*"]
        ["~/.cargo/credentials", "~/.cargo/credentials.toml", "$CARGO_HOME/credentials",
         "$CARGO_HOME/credentials.toml"];
    ["pip", "pip3", "uv", "pipx", "poetry", "pdm", "hatch", "rye", "flit", "pipenv", "twine", "conda",
     "mamba"] AllBut(PYTHON_VERBS) =>
        ["PIP_*", "UV_INDEX*", "UV_EXTRA_INDEX*", "UV_DEFAULT_INDEX", "UV_PUBLISH_*", "TWINE_*",
         "POETRY_PYPI_TOKEN_*", "POETRY_HTTP_BASIC_*", "FLIT_PASSWORD", "PDM_PUBLISH_*",
         "HATCH_INDEX_*", "PYPI_TOKEN", "PYPI_API_TOKEN", "ANACONDA_API_*"]
        ["~/.pypirc", "@config/pypoetry/auth.toml", "$POETRY_CONFIG_DIR/auth.toml", "@data/uv/credentials", "$PIP_CONFIG_FILE",
         "~/.netrc", "$NETRC"];
    ["aws", "sam", "cdk", "eksctl", "s5cmd"] =>
        ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN",
         "AWS_CONTAINER_AUTHORIZATION_TOKEN"]
        ["~/.aws", "$AWS_SHARED_CREDENTIALS_FILE", "$AWS_CONFIG_FILE",
         "$AWS_WEB_IDENTITY_TOKEN_FILE",
         "$AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "~/snap/aws-cli"]
        writes ["~/.aws/cli", "~/.aws/sso"];
    ["gcloud", "gsutil", "bq"] =>
        ["CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_CREDENTIALS",
         "GCLOUD_SERVICE_KEY"]
        ["@config/gcloud", "~/.boto", "$CLOUDSDK_CONFIG", "$GOOGLE_APPLICATION_CREDENTIALS",
         "$GOOGLE_GHA_CREDS_PATH", "$CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "$BOTO_CONFIG",
         "~/snap/google-cloud-cli", "~/snap/google-cloud-sdk"]
        writes ["@config/gcloud", "$CLOUDSDK_CONFIG"];
    ["az", "azd"] =>
        ["AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "AZURE_PASSWORD",
         "AZURE_STORAGE_*", "AZURE_DEVOPS_EXT_PAT"]
        ["~/.azure", "~/.azd", "$AZURE_CONFIG_DIR", "$AZURE_CLIENT_CERTIFICATE_PATH",
         "$AZURE_FEDERATED_TOKEN_FILE"]
        writes ["~/.azure", "~/.azd", "$AZURE_CONFIG_DIR"];
    ["docker", "podman", "buildah", "skopeo", "nerdctl", "crane", "oras"] =>
        ["DOCKER_PASSWORD", "DOCKER_AUTH_CONFIG", "DOCKER_TOKEN", "DOCKERHUB_*",
         "REGISTRY_PASSWORD"]
        ["~/.docker/config.json", "~/.docker/contexts", "~/.docker/machine", "~/.docker/trust",
         "~/.dockercfg",
         "@config/containers/auth.json",
         "@runtime/containers/auth.json", "$DOCKER_CONFIG/config.json", "$DOCKER_CONFIG/contexts",
         "~/snap/docker", "$REGISTRY_AUTH_FILE",
         "$DOCKER_CERT_PATH"];
    ["kubectl", "helm", "k9s", "oc", "flux", "argocd", "stern", "kustomize"] =>
        ["KUBE_TOKEN", "ARGOCD_AUTH_TOKEN", "HELM_KUBETOKEN", "HELM_REGISTRY_PASSWORD"]
        ["~/.kube", "$KUBECONFIG", "@config/helm/registry", "@config/helm/repositories.yaml",
         "$HELM_REGISTRY_CONFIG", "@config/argocd", "@config/flux", "~/snap/kubectl",
         "~/.minikube/profiles", "$MINIKUBE_HOME/profiles", "$MINIKUBE_HOME/.minikube/profiles",
         "$HELM_REPOSITORY_CONFIG", "~/.helm/repository/repositories.yaml", "$ARGOCD_CONFIG_DIR"]
        writes ["~/.kube/cache"];
    ["terraform", "tofu", "terragrunt", "packer"] =>
        ["TF_TOKEN_*", "TF_VAR_*", "ARM_CLIENT_SECRET", "ARM_ACCESS_KEY"]
        ["~/.terraform.d/credentials.tfrc.json", "~/.terraformrc", "$TF_CLI_CONFIG_FILE"];
    ["pulumi"] =>
        ["PULUMI_ACCESS_TOKEN", "PULUMI_CONFIG_PASSPHRASE"]
        ["~/.pulumi", "$PULUMI_HOME"];
    ["vault"] => ["VAULT_TOKEN"] ["~/.vault-token", "$VAULT_CONFIG_PATH", "$VAULT_CLIENT_KEY"];
    ["hf", "huggingface-cli"] =>
        ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN"]
        ["@cache/huggingface/token", "@cache/huggingface/stored_tokens", "~/.huggingface/token",
         "$HF_HOME/token", "$HF_HOME/stored_tokens", "$HF_TOKEN_PATH", "$HF_STORED_TOKENS_PATH"];
    ["kaggle"] => ["KAGGLE_KEY"] ["~/.kaggle", "@config/kaggle", "$KAGGLE_CONFIG_DIR"];
    // Not for curl and wget, which send any file to any host.
    [] => [] ["~/.netrc", "$NETRC", "~/.curlrc", "$CURL_HOME/.curlrc", "~/.wgetrc", "$WGETRC"];
    ["heroku"] => ["HEROKU_API_KEY"] ["~/.netrc", "@config/heroku", "@data/heroku"];
    ["vercel"] => ["VERCEL_TOKEN"] ["@data/com.vercel.cli"];
    ["netlify"] => ["NETLIFY_AUTH_TOKEN"] ["@config/netlify"];
    ["wrangler"] =>
        ["CLOUDFLARE_API_TOKEN", "CLOUDFLARE_API_KEY", "CF_API_TOKEN"]
        ["~/.wrangler", "@config/.wrangler"];
    ["fly", "flyctl"] => ["FLY_API_TOKEN", "FLY_ACCESS_TOKEN"] ["~/.fly", "$FLY_CONFIG_DIR"];
    ["doctl"] => ["DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_TOKEN"] ["@config/doctl", "~/snap/doctl"];
    ["hcloud"] => ["HCLOUD_TOKEN"] ["@config/hcloud", "$HCLOUD_CONFIG"];
    ["firebase"] => ["FIREBASE_TOKEN"] ["@config/configstore"];
    ["stripe"] => ["STRIPE_API_KEY"] ["@config/stripe"];
    ["sentry-cli"] => ["SENTRY_AUTH_TOKEN"] ["~/.sentryclirc"];
    ["snow", "snowsql"] => ["SNOWFLAKE_PASSWORD", "SNOWSQL_PWD"] ["~/.snowflake", "~/.snowsql", "@config/snowflake", "$SNOWFLAKE_HOME"];
    ["databricks"] => ["DATABRICKS_TOKEN"] ["~/.databrickscfg", "$DATABRICKS_CONFIG_FILE", "~/.databricks/token-cache.json"];
    ["oci"] => ["OCI_CLI_KEY_CONTENT"] ["~/.oci", "$OCI_CLI_CONFIG_FILE"];
    ["psql", "pg_dump", "pg_restore", "createdb", "dropdb"] =>
        ["PGPASSWORD"]
        ["~/.pgpass", "$PGPASSFILE", "~/.pg_service.conf", "$PGSERVICEFILE", "$PGSSLKEY",
         "~/.postgresql/postgresql.key"];
    ["mysql", "mysqldump", "mysqladmin", "mariadb"] =>
        ["MYSQL_PWD"]
        ["~/.my.cnf", "$MYSQL_HOME/my.cnf", "~/.mylogin.cnf", "$MYSQL_TEST_LOGIN_FILE"];
    ["redis-cli"] => ["REDISCLI_AUTH"] ["~/.redisclirc"];
    ["rclone"] => ["RCLONE_CONFIG_PASS"] ["@config/rclone", "~/.rclone.conf", "$RCLONE_CONFIG"];
    ["s3cmd"] => [] ["~/.s3cfg", "~/.passwd-s3fs"];
    ["gem"] => ["GEM_HOST_API_KEY"] ["~/.gem/credentials", "@data/gem/credentials"];
    ["bundle", "bundler"] Only(BUNDLE_VERBS) => ["BUNDLE_*"] [];
    ["dotnet", "nuget"] Only(NUGET_VERBS) => ["VSS_NUGET_EXTERNAL_FEED_ENDPOINTS"] [];
    ["bw"] => ["BW_SESSION"] ["@config/Bitwarden CLI", "$BITWARDENCLI_APPDATA_DIR"];
    ["composer"] => ["COMPOSER_AUTH"] ["@config/composer/auth.json", "$COMPOSER_HOME/auth.json"];
    ["svn"] => [] ["~/.subversion/auth"];
    ["gpg", "gpg2"] => [] ["~/.gnupg", "$GNUPGHOME"];
    ["pass", "gopass"] => [] ["~/.password-store", "$PASSWORD_STORE_DIR", "@data/gopass"];
    ["tea"] => ["GITEA_TOKEN"] ["@config/tea"];
    ["dbt"] => [] ["~/.dbt/profiles.yml"];
    ["mc"] => ["MC_HOST_*"] ["~/.mc"];
    ["modal"] => ["MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"] ["~/.modal.toml"];
    ["openstack"] => ["OS_PASSWORD", "OS_TOKEN"] ["@config/openstack"];
    ["clasp"] => [] ["~/.clasprc.json"];
    ["cqlsh"] => [] ["~/.cassandra/cqlshrc"];
    ["b2"] => ["B2_APPLICATION_KEY"] ["~/.b2_account_info"];
    ["kopia"] => ["KOPIA_PASSWORD"] ["@config/kopia"];
    ["lein"] => [] ["~/.lein/credentials.clj", "~/.lein/credentials.clj.gpg"];
    ["lxc"] => [] ["@config/lxc/client.key"];
    ["incus"] => [] ["@config/incus/client.key"];
    ["talosctl"] => [] ["~/.talos", "$TALOSCONFIG"];
    ["earthengine"] => [] ["@config/earthengine"];
    ["pscale"] => ["PLANETSCALE_SERVICE_TOKEN"] ["~/.planetscale", "@config/planetscale"];
    ["akamai"] => [] ["~/.edgerc"];
    ["fastly"] => ["FASTLY_API_TOKEN"] ["@config/fastly"];
    ["twilio"] => ["TWILIO_AUTH_TOKEN"] ["~/.twilio-cli"];
    ["jf", "jfrog"] => ["JFROG_CLI_ACCESS_TOKEN"] ["~/.jfrog"];
    ["p4"] => ["P4PASSWD"] ["~/.p4tickets"];
    ["op"] => ["OP_SERVICE_ACCOUNT_TOKEN", "OP_SESSION_*"] ["@config/op", "~/.op", "$OP_CONFIG_DIR"];
    ["lpass"] => [] ["~/.lpass", "@data/lpass", "$LPASS_HOME"];
    ["cf"] => [] ["~/.cf", "$CF_HOME/.cf"];
    ["adb"] => [] ["~/.android/adbkey"];
    ["ollama"] => [] ["~/.ollama/id_ed25519"];
    ["cockroach"] => [] ["~/.cockroach-certs", "$COCKROACH_CERTS_DIR"];
    ["sops", "age"] => ["SOPS_AGE_KEY"] ["@config/sops", "@config/age", "$SOPS_AGE_KEY_FILE"];
    ["ansible", "ansible-playbook", "ansible-vault"] => [] ["$ANSIBLE_VAULT_PASSWORD_FILE"];
    ["msmtp", "mutt"] => [] ["~/.msmtprc", "@config/msmtp", "~/.mutt", "~/.muttrc", "@config/mutt"];
    // Further services.
    [] => [] [
        "~/.aliyun", "~/.bluemix", "~/.railway", "~/.supabase", "~/.ngrok2", "@config/ngrok",
        "@config/scw", "@config/linode-cli", "@config/digitalocean", "@config/github-copilot",
        "~/.sbt/.credentials", "~/.ivy2/.credentials", "~/.m2/settings-security.xml",
        "~/.circleci/cli.yml", "~/.travis", "~/.rancher", "~/.step", "~/.tsh", "~/.cloudflared",
        "@config/solana", "@config/doppler", "~/.doppler", "~/.infisical", "~/.akeyless", "~/.chef",
        "~/.vagrant.d/data", "~/.influxdbv2", "~/.mongorc.js", "@config/mongocli",
        "@config/atlascli",
        "@config/turso", "@config/neonctl", "~/.okta", "~/.saml2aws", "~/.granted",
        "~/.smbcredentials", "~/.fetchmailrc", "~/.authinfo", "~/.authinfo.gpg", "~/.offlineimaprc",
        "~/.mbsyncrc", "@config/borg", "@config/restic", "@config/rbw", "@data/rbw",
        "@config/aerc", "@config/himalaya", "~/.awsvault", "~/.acme.sh", "@config/cachix", "~/.arcrc",
        "~/actions-runner/.credentials", "~/actions-runner/.credentials_rsaparams",
        "@config/syncthing", "~/.local/state/syncthing", "~/.vast_api_key", "~/.runpod",
        "~/.ovh.conf", "@config/exoscale", "~/.cvspass", "~/.davfs2/secrets", "@config/onedrive",
        "@data/caddy/pki/authorities/local/root.key", "@data/signal-cli", "@config/binstar", "@data/python_keyring",
        "~/.appcfg_oauth2_tokens", "~/.pub-cache/credentials.json", "@config/dart/pub-credentials.json",
        "~/.expo/state.json", "~/.continuum", "~/.appstoreconnect", "~/.private_keys", "~/private_keys",
        "~/.earthly/auth.credentials", "~/.earthly/auth.jwt", "~/.deta/tokens", "@config/scalingo",
        "@config/clever-cloud", "~/.appwrite", "@config/ggshield/auth_config.yaml", "~/.wakatime.cfg",
        "~/.twurlrc", "~/.zuliprc", "@config/matrix-commander", "@data/matrix-commander",
        "@config/deluge/auth", "~/.lftp", "@data/lftp", "~/.ncftp", "~/.civo.json",
        "~/.vultr-cli.yaml", "@config/upctl.yaml", "~/.luarocks/upload_config.lua",
        "~/.dropbox_uploader", "~/.tarsnap.key", "~/.jenkins/secrets", "~/.jenkins/credentials.xml",
        "@config/toot", "~/src-config.json", "~/.ngrok", "@data/jupyter/runtime",
        "$DOPPLER_CONFIG_DIR", "@config/yandex-cloud",
        "~/.newrelic", "~/.slack", "~/.cdsapirc", "~/.tccli", "@config/httpie/sessions",
        "~/.httpie/sessions", "@config/xh/sessions", "~/.minikube/ca.key", "@data/mkcert/rootCA-key.pem",
        "~/.sfdx", "~/.sf", "~/.particle", "~/.platformio/appstate.json", "~/.pause",
        "~/.contentfulrc.json", "~/.transifexrc", "~/.cqlshrc", "~/.cassandra/credentials",
        "~/.usqlpass", "~/clearml.conf", "~/.comet.config",
        "@config/prisma-platform", "@config/b2", "@config/gspread", "@config/todoist",
        "@config/dnscontrol", "~/.newsboat/config", "@config/newsboat/config",
        "@config/obs-studio/basic/profiles", "@config/kdeconnect/privateKey.pem", "@config/vdirsyncer",
        "@config/neomutt", "~/.neomuttrc", "~/.esmtprc", "~/.getmail", "@config/getmail",
    ];
    // Secrets of the machine, mounted for this container or service.
    [] => [] [
        "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private",
        "/etc/wireguard", "/etc/krb5.keytab", "/etc/rancher", "/etc/kubernetes", "/run/secrets",
        "/var/run/secrets", "/run/credentials", "$CREDENTIALS_DIRECTORY", "/var/lib/kubelet/pki",
        "/run/agenix", "/run/keys", "/kaniko/.docker",
    ];
    // Other programs that run models: logins and transcripts.
    [] => [] [
        "~/.claude.json", "~/.claude/.credentials.json", "~/.claude/projects",
        "~/.claude/history.jsonl", "~/.claude/sessions", "~/.claude/transcripts", "~/.claude/todos",
        "~/.claude/tasks", "~/.claude/file-history", "~/.claude/shell-snapshots",
        "~/.claude/session-env", "~/.claude/paste-cache", "~/.claude/debug", "~/.claude/backups",
        "@config/Claude", "~/.codex/auth.json", "~/.codex/history.jsonl", "~/.codex/sessions",
        "~/.codex/archived_sessions", "$CODEX_HOME/auth.json",
        "$CODEX_HOME/history.jsonl", "$CODEX_HOME/sessions", "$CODEX_HOME/archived_sessions", "~/.gemini/oauth_creds.json", "~/.gemini/tmp",
        "~/.gemini/history", "~/.copilot", "@data/opencode/auth.json", "@data/opencode/storage",
        "~/.continue/sessions", "~/.aider.chat.history.md", "~/.aider.input.history",
        "@config/goose", "@data/goose", "~/.cursor/projects", "~/.cursor/chats", "@config/cursor",
        "~/.qwen/oauth_creds.json", "@config/io.datasette.llm", "@config/openai", "@data/amp",
        "~/.factory/auth.json", "~/.factory/sessions", "@data/crush", "@config/crush",
        "@data/amazon-q", "~/.cline/data", "~/.augment/session.json", "~/.codeium/config.json",
        "~/.pi/agent/auth.json", "~/.pi/agent/sessions", "@config/shell_gpt/.sgptrc", "~/.anthropic",
        "~/.aider.conf.yml", "~/.cursor/mcp.json", "~/.continue/config.yaml", "~/.continue/config.json",
        "@config/aichat", "@data/kiro-cli", "~/.opencommit",
    ];
    // Browsers, mail, chat and managers of passwords.
    [] => [] [
        "~/.mozilla", "~/.thunderbird", "~/.zen", "~/.librewolf", "~/.waterfox", "@config/mozilla",
        "@config/google-chrome", "@config/google-chrome-beta", "@config/google-chrome-unstable",
        "@config/chromium", "@config/BraveSoftware", "@config/microsoft-edge",
        "@config/microsoft-edge-dev", "@config/vivaldi", "@config/opera", "@config/Opera",
        "@data/qutebrowser", "@data/epiphany", "@config/Slack", "@config/discord", "@config/Signal",
        "@config/Element", "@config/teams-for-linux", "@config/Ferdium", "@config/zoomus.conf",
        "~/.zoom", "@config/skypeforlinux", "@data/TelegramDesktop", "@data/evolution",
        "@config/evolution", "@data/geary", "~/.purple", "~/.weechat", "@config/weechat",
        "~/.irssi",
        "@config/hexchat", "@config/Bitwarden", "@config/1Password", "@config/keepassxc",
        "@config/Authy Desktop", "@config/Postman", "@config/Insomnia", "~/.var/app",
        "~/snap/firefox", "~/snap/chromium", "~/snap/brave", "~/snap/opera", "~/snap/thunderbird",
        "~/snap/vivaldi", "~/snap/librewolf", "~/snap/slack", "~/snap/discord",
        "~/snap/signal-desktop", "~/snap/telegram-desktop", "~/snap/bitwarden", "~/snap/keepassxc",
        "~/snap/postman",
    ];
    // Logins that editors keep for their extensions, remote desktops, database clients.
    [] => [] [
        "@config/Code/User/globalStorage", "@config/Code/Cookies", "@config/Code/Network",
        "@config/Code - Insiders/User/globalStorage", "@config/VSCodium/User/globalStorage",
        "~/.vscode-server/data/User/globalStorage", "~/.cursor-server/data/User/globalStorage",
        "@config/Cursor", "@config/Windsurf", "@config/JetBrains", "@data/zed/db",
        "@config/filezilla", "@config/remmina", "@data/remmina", "@config/freerdp",
        "@data/DBeaverData", "~/.dbeaver", "@config/pgadmin", "~/.pgadmin", "~/.vnc/passwd",
        "@config/tigervnc/passwd", "~/.Xauthority", "$XAUTHORITY", "~/.ICEauthority", "$ICEAUTHORITY", "@config/Termius",
        "@config/rustdesk", "~/.putty",
    ];
    // Keyrings, certificates, wallets.
    [] => [] [
        "@data/keyrings", "~/.gnome2/keyrings", "$KRB5CCNAME", "$KRB5_KTNAME", "@data/kwalletd", "~/.pki", "~/.krb5", "@config/libaccounts-glib",
        "~/.bitcoin", "~/.ethereum", "~/.electrum", "~/.monero", "@config/Exodus",
        "@config/Ledger Live", "~/.foundry/keystores", "~/.sui/sui_config/sui.keystore",
        "~/.aptos/config.yaml", "~/.near-credentials",
    ];
    // Histories of shells and clients: passwords are typed there.
    [] => [] [
        "~/.bash_history", "~/.zsh_history", "~/.zhistory", "~/.histfile", "~/.sh_history",
        "~/.ksh_history", "$HISTFILE", "~/.zsh_sessions",
        "$ZDOTDIR/.zsh_history", "$ZDOTDIR/.zhistory", "$ZDOTDIR/.histfile", "$ZDOTDIR/.zsh_sessions",
        "$IPYTHONDIR/profile_default/history.sqlite", "$PYTHON_HISTORY", "$NODE_REPL_HISTORY",
        "$PSQL_HISTORY", "$MYSQL_HISTFILE", "$MARIADB_HISTFILE", "$SQLITE_HISTORY",
        "$REDISCLI_HISTFILE", "$LESSHISTFILE", "@data/fish/fish_history", "@data/atuin",
        "@data/mcfly", "@config/nushell/history.txt", "@config/nushell/history.sqlite3",
        "@data/powershell/PSReadLine", "~/.python_history", "@data/python/python_history",
        "~/.ipython/profile_default/history.sqlite", "~/.node_repl_history", "~/.irb_history",
        "@data/irb", "~/.pry_history", "@data/pry", "~/.psql_history", "~/.mysql_history",
        "~/.mariadb_history", "~/.sqlite_history", "~/.duckdb_history", "~/.rediscli_history",
        "~/.dbshell", "~/.mongodb", "~/.lesshst", "~/.viminfo", "~/.wget-hsts", "@data/nvim/shada",
        "~/.Rhistory", "~/.scala_history", "~/.php_history", "~/.lua_history",
        "~/.local/state/nvim/shada", "~/.usql_history",
        "~/.clickhouse-client-history", "~/.mycli-history", "@config/pgcli/history", "~/.trino_history",
    ];
}
