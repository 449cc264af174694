//! Well-known paths: tool caches, temporary folders, and devices that any program may use.

/// Caches, relative to the home folder: folders without settings or programs for the user.
pub(super) const CACHES: &[&str] = &[
    ".cache",
    ".npm",
    ".yarn/berry",
    ".pnpm-store",
    ".local/share/pnpm/store",
    ".bun/install/cache",
    ".node-gyp",
    ".ccache",
    ".sccache",
    ".gradle/caches",
    ".gradle/daemon",
    ".gradle/jdks",
    ".gradle/native",
    ".gradle/notifications",
    ".gradle/wrapper",
    ".gradle/.tmp",
    ".m2/repository",
    ".m2/wrapper",
    ".ivy2/cache",
    ".sbt/boot",
    ".konan",
    ".android/cache",
    ".nuget/packages",
    ".local/share/NuGet",
    ".local/share/uv/python",
    ".bundle/cache",
    ".cocoapods/repos",
    ".composer/cache",
    ".pub-cache/_temp",
    ".pub-cache/git",
    ".pub-cache/hosted",
    ".pub-cache/hosted-hashes",
    ".pub-cache/log",
    ".stack/pantry",
    ".stack/snapshots",
    ".cabal/logs",
    ".cabal/packages",
    ".cabal/store",
    ".local/state/cabal/store",
    ".opam/download-cache",
    ".hex/packages",
    ".cpanm",
    ".conan/data",
    ".conan2/p",
    ".swiftpm/cache",
    ".terraform.d/plugin-cache",
    ".vscode-test",
];

/// Folders of the home folder that a variable moves, with the caches in them.
pub(super) const MOVED_FOLDERS: &[(&str, &str)] = &[
    (".gradle", "GRADLE_USER_HOME"),
    (".local/share", "XDG_DATA_HOME"),
    (".local/state", "XDG_STATE_HOME"),
    (".cabal", "CABAL_DIR"),
    (".stack", "STACK_ROOT"),
    (".hex", "HEX_HOME"),
    (".composer", "COMPOSER_HOME"),
    (".conan2", "CONAN_HOME"),
    (".cargo", "CARGO_HOME"),
];

/// Caches of cargo, relative to the home folder. Its locks are files.
pub(super) const CARGO_CACHES: &[&str] = &[".cargo/registry", ".cargo/git"];
pub(super) const CARGO_LOCKS: &[&str] = &[".cargo/.package-cache", ".cargo/.package-cache-mutate"];

/// Caches named by a variable.
pub(super) const CACHE_VARIABLES: &[&str] = &[
    "XDG_CACHE_HOME",
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
    "COMPOSER_CACHE_DIR",
    "BUNDLE_USER_CACHE",
    "PUB_CACHE",
    "COURSIER_CACHE",
    "KONAN_DATA_DIR",
    "DENO_DIR",
    "BUN_INSTALL_CACHE_DIR",
    "NUGET_PACKAGES",
    "HF_HOME",
    "MPLCONFIGDIR",
    "PLAYWRIGHT_BROWSERS_PATH",
];

/// The folders in which shared memory and message queues are files.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
pub(super) const MESSAGE_QUEUES: &str = "/dev/mqueue";

/// Temporary folders. Python's `multiprocessing` and browsers fail without shared memory.
pub(super) const TEMPORARY: &[&str] = &["/tmp", "/var/tmp", SHARED_MEMORY, MESSAGE_QUEUES];

/// Cache folders in `~/.cache`, which are created if that folder is not granted as a whole because
/// it contains a credential: commands then cannot write to folders that they create there.
pub(super) const CACHES_BESIDE_CREDENTIALS: &[&str] = &[
    "Cypress",
    "bazel",
    "ccache",
    "composer",
    "deno",
    "electron",
    "go-build",
    "golangci-lint",
    "huggingface/assets",
    "huggingface/datasets",
    "huggingface/hub",
    "huggingface/modules",
    "huggingface/xet",
    "matplotlib",
    "ms-playwright",
    "node",
    "pip",
    "pnpm",
    "pre-commit",
    "puppeteer",
    "pypoetry",
    "torch",
    "uv",
    "yarn",
];

/// The folder of all devices. Commands may use only the devices listed below: a disk contains every
/// file, and a terminal shows what the user types.
pub(super) const DEVICE_FOLDER: &str = "/dev";

/// Devices without content.
pub(super) const STANDARD_DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Further devices that any program may use: GPUs and virtual machines.
pub(super) const DEVICES: &[&str] = &["/dev/dri", "/dev/kfd", "/dev/kvm"];

/// The prefix of further GPU devices.
pub(super) const DEVICE_PREFIX: &str = "nvidia";

/// Terminals: those that commands create, and that of the user.
pub(super) const TERMINALS: &[&str] = &["/dev/tty", "/dev/ptmx", "/dev/pts"];
