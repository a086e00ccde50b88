//! Acceptance test 8: the library chooses no device for its users.

use std::process::Command;

/// Test 8: without features and without what the tests need, no backend of Burn is compiled.
#[test]
fn the_library_alone_has_no_backend() {
    let mut tree = Command::new(env!("CARGO"));
    tree.args([
        "tree",
        "--locked",
        "--offline",
        "--no-default-features",
        "--edges",
        "normal,build",
    ]);
    tree.args(["--prefix", "none", "--format", "{p}", "--manifest-path"]);
    let output = tree.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let crates: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains(&"burn-core") && crates.contains(&"headwater"), "{text}");
    for backend in [
        "burn-flex",
        "burn-ndarray",
        "burn-cpu",
        "burn-cubecl",
        "burn-cuda",
        "burn-tch",
        "burn-wgpu",
    ] {
        assert!(!crates.contains(&backend), "{backend}");
    }
    // What the example and the Learner need.
    for own in ["burn-autodiff", "burn-optim", "burn-train"] {
        assert!(!crates.contains(&own), "{own}");
    }
}
