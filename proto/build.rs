//! Compiles the channel's schema with protox, so that no system `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const SCHEMA: &str = "spawnery/agent/v1alpha1/agent.proto";
    println!("cargo::rerun-if-changed={SCHEMA}");
    let descriptors = protox::compile([SCHEMA], ["."])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
