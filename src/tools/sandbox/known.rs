//! Where credentials lie, where tools keep what they can fetch again, and which devices are for
//! everybody.

/// What commands and file tools have no business with, seen from the home folder.
///
/// `.npmrc`, `.gradle/gradle.properties` and `.m2/settings.xml` may hold tokens too, but their
/// tools do not start when they cannot read them.
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

/// The same, seen from `XDG_CONFIG_HOME`.
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

/// The same for the whole machine.
pub(super) const SYSTEM_CREDENTIALS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/run/secrets/kubernetes.io",
    "/var/run/secrets/kubernetes.io",
];

/// Caches, seen from the home folder.
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

/// Caches that a variable names.
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

/// Folders for passing things.
pub(super) const TEMPORARY: &[&str] = &["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"];

/// Devices that any program may use: the usual ones, terminals, and what computes.
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

/// Further ones begin with this.
pub(super) const DEVICE_PREFIX: &str = "nvidia";

/// Ways around every file: the memory of the machine.
pub(super) const MEMORY: &[&str] = &["/dev/mem", "/dev/kmem", "/dev/port"];
