//! Any bytes as a picture or PDF: shown whole, or refused; never a crash, a hang or a full memory.

use std::cell::OnceCell;
use std::fs;

use super::{toolbox, work};
use outlast::tools::{PermissionMode, Toolbox};
use outlast::transcript::{Block, ToolCall};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

const BEGINNINGS: [&[u8]; 7] = [
    b"",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"GIF89a",
    b"RIFF\0\0\0\0WEBP",
    b"%PDF-1.4\n",
    b"",
];

thread_local! {
    static BENCH: OnceCell<(Toolbox, Runtime)> = const { OnceCell::new() };
}

pub fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let beginning = BEGINNINGS[usize::from(*first) % BEGINNINGS.len()];
    let path = work().join("file");
    fs::write(&path, [beginning, rest].concat()).expect("there is room");
    BENCH.with(|bench| {
        let (tools, runtime) = bench.get_or_init(|| {
            let runtime = Builder::new_current_thread()
                .enable_time()
                .build()
                .expect("a runtime can be built");
            (toolbox(PermissionMode::Default, &[], &[]), runtime)
        });
        let input = json!({ "file_path": path });
        let call = ToolCall { id: "toolu_1".to_owned(), name: "Read".to_owned(), input };
        let permit = tools.admit(&call).expect("the folder may be read");
        let outcome = runtime.block_on(tools.run(permit, CancellationToken::new()));
        for block in &outcome.content {
            // A panic inside a tool is caught, and told to the model.
            if let Block::Text { text } = block {
                assert!(!text.contains("defect in outlast"), "{text}");
            }
        }
        assert!(!outcome.content.is_empty());
    });
}
