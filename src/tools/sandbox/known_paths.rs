//! Well-known paths: credentials, tool caches, temporary folders, and devices that any program may
//! use.

/// Credential locations that commands and file tools may not access, relative to the home folder.
///
/// `.npmrc`, `.gradle/gradle.properties` and `.m2/settings.xml` may contain tokens too, but their
/// tools do not start if they cannot read them.
pub(super) const CREDENTIALS: &[&str] = &[
    ".ssh",
    ".aws",
    ".gnupg",
    ".azure",
    ".kube",
    ".docker/config.json",
    ".netrc",
    ".git-credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".pypirc",
    ".gem/credentials",
    ".password-store",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".boto",
    ".s3cfg",
    ".oci",
    ".databrickscfg",
    ".terraform.d/credentials.tfrc.json",
    ".kaggle",
    ".fly",
    ".mozilla",
    ".thunderbird",
    ".bitcoin",
    ".ethereum",
    ".electrum",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
];

/// Credential locations relative to `XDG_CONFIG_HOME`.
pub(super) const CONFIG_CREDENTIALS: &[&str] = &[
    "gcloud",
    "gh",
    "hub",
    "glab-cli",
    "git/credentials",
    "rclone",
    "op",
    "doctl",
    "sops",
    "age",
    "containers/auth.json",
    "google-chrome",
    "chromium",
    "BraveSoftware",
    "microsoft-edge",
];

/// System-wide credential locations.
pub(super) const SYSTEM_CREDENTIALS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/run/secrets/kubernetes.io",
    "/var/run/secrets/kubernetes.io",
];

/// Caches, relative to the home folder.
pub(super) const CACHES: &[&str] = &[
    ".npm",
    ".yarn",
    ".pnpm-store",
    ".local/share/pnpm/store",
    ".bun/install/cache",
    ".node-gyp",
    ".ccache",
    ".sccache",
    ".gradle/caches",
    ".gradle/daemon",
    ".gradle/native",
    ".gradle/wrapper",
    ".gradle/.tmp",
    ".m2/repository",
    ".ivy2/cache",
    ".nuget/packages",
    ".local/share/NuGet",
    ".bundle/cache",
    ".composer/cache",
    ".pub-cache",
    ".stack/pantry",
    ".cabal/packages",
    ".hex/packages",
    ".conan2/p",
    ".vscode-test",
];

/// Caches named by a variable.
pub(super) const CACHE_VARIABLES: &[&str] = &[
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_BUILD_DIR",
    "npm_config_cache",
    "NPM_CONFIG_CACHE",
    "YARN_CACHE_FOLDER",
    "PIP_CACHE_DIR",
    "UV_CACHE_DIR",
    "POETRY_CACHE_DIR",
    "PYTHONPYCACHEPREFIX",
    "GOCACHE",
    "GOMODCACHE",
    "GOTMPDIR",
    "CCACHE_DIR",
    "SCCACHE_DIR",
    "DENO_DIR",
    "BUN_INSTALL_CACHE_DIR",
    "NUGET_PACKAGES",
    "HF_HOME",
    "MPLCONFIGDIR",
    "PLAYWRIGHT_BROWSERS_PATH",
];

/// Temporary folders.
pub(super) const TEMPORARY: &[&str] = &["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"];

/// Devices that any program may use: the standard ones, terminals, and GPUs.
pub(super) const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/dri",
    "/dev/kfd",
    "/dev/kvm",
];

/// The prefix of further GPU devices.
pub(super) const DEVICE_PREFIX: &str = "nvidia";

/// Devices that expose memory, and with it every file.
pub(super) const MEMORY: &[&str] = &["/dev/mem", "/dev/kmem", "/dev/port"];
