//! An archive of images: an OCI layout in a tar.

use super::{
    NONROOT,
    layer::{Blob, Layer, header},
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufWriter, Write},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::Arc,
};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// By this annotation containerd names what it imports.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// By this one skopeo and podman do.
const REFERENCE: &str = "org.opencontainers.image.ref.name";

/// An image: layers, and what runs in them unless a pod says otherwise.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    layers: Vec<Arc<Layer>>,
    user: String,
    entrypoint: Vec<String>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    directory: String,
    labels: Vec<(String, String)>,
}

impl Image {
    /// An image that runs as [`NONROOT`] and starts nothing by itself. The name is a whole one, with registry and tag, as in
    /// `local.test/pause:1`: a node takes a name without a registry for Docker Hub's.
    pub fn new(name: impl Into<String>, layers: impl IntoIterator<Item = Arc<Layer>>) -> Self {
        Self {
            name: name.into(),
            layers: layers.into_iter().collect(),
            user: format!("{NONROOT}:{NONROOT}"),
            entrypoint: Vec::new(),
            args: Vec::new(),
            env: vec![("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())],
            directory: "/".to_owned(),
            labels: Vec::new(),
        }
    }

    /// What it starts: a pod's `command` replaces it.
    #[must_use]
    pub fn entrypoint<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.entrypoint = words.into_iter().map(Into::into).collect();
        self
    }

    /// With which arguments: a pod's `args` replace them.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.args = words.into_iter().map(Into::into).collect();
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((key.into(), value.into()));
        self
    }

    /// Who it runs as, as numbers: `runAsNonRoot` does not believe names.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// The working directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<String>) -> Self {
        self.directory = directory.into();
        self
    }

    /// A label, such as `org.opencontainers.image.source`.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// The size of its layers, which is what a node keeps.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bytes()).sum()
    }

    fn config(&self) -> Value {
        let pairs = |pairs: &[(String, String)]| -> serde_json::Map<String, Value> {
            pairs.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect()
        };
        json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "User": self.user,
                "Entrypoint": self.entrypoint,
                "Cmd": self.args,
                "Env": self.env.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>(),
                "WorkingDir": self.directory,
                "Labels": pairs(&self.labels),
            },
            // Not compressed: a layer's digest is its own.
            "rootfs": {
                "type": "layers",
                "diff_ids": self.layers.iter().map(|layer| layer.blob().digest.to_string()).collect::<Vec<_>>(),
            },
        })
    }

    fn manifest(&self, config: &Blob) -> Value {
        json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, config),
            "layers": self.layers.iter().map(|layer| descriptor(LAYER, layer.blob())).collect::<Vec<_>>(),
        })
    }
}

/// Writes archives.
#[derive(Debug)]
pub struct Archive;

impl Archive {
    /// Writes an archive of these images; what they share is in it once. It appears at `path` when it is whole.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(path: &Path, images: &[Image]) -> Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
        // Beside its place, so that it appears whole; readable to a node that runs as somebody else.
        let file = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o644)).tempfile_in(folder);
        let file = file.with_context(|| format!("could not write in {}", folder.display()))?;
        let mut archive = Writer { tar: tar::Builder::new(BufWriter::new(file)), written: BTreeSet::new() };
        archive.images(images).with_context(|| format!("could not write {}", path.display()))?;
        let file = archive.tar.into_inner().context("could not end the archive")?;
        let file = file.into_inner().context("could not write the archive")?;
        file.persist(path).with_context(|| format!("could not write {}", path.display()))?;
        Ok(())
    }
}

struct Writer<W: Write> {
    tar: tar::Builder<W>,
    written: BTreeSet<String>,
}

impl<W: Write> Writer<W> {
    fn images(&mut self, images: &[Image]) -> Result<()> {
        self.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let mut index = Vec::new();
        // What `docker save` writes too: engines that do not read layouts read this.
        let mut docker = Vec::new();
        for image in images {
            for layer in &image.layers {
                self.once(&layer.blob().digest.path(), layer.blob().bytes, layer.read()?)?;
            }
            let config = self.json(&image.config())?;
            let manifest = self.json(&image.manifest(&config))?;
            docker.push(json!({
                "Config": config.digest.path(),
                "RepoTags": [image.name],
                "Layers": image.layers.iter().map(|layer| layer.blob().digest.path()).collect::<Vec<_>>(),
            }));
            index.push(json!({
                "mediaType": MANIFEST,
                "digest": manifest.digest.to_string(),
                "size": manifest.bytes,
                "platform": { "architecture": architecture(), "os": "linux" },
                "annotations": { CONTAINERD_NAME: image.name, REFERENCE: image.name },
            }));
        }
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": index });
        self.file("index.json", &serde_json::to_vec(&index)?)?;
        self.file("manifest.json", &serde_json::to_vec(&docker)?)
    }

    fn json(&mut self, value: &Value) -> Result<Blob> {
        let bytes = serde_json::to_vec(value)?;
        let blob = Blob::of(&bytes);
        self.once(&blob.digest.path(), blob.bytes, bytes.as_slice())?;
        Ok(blob)
    }

    fn file(&mut self, path: &str, contents: &[u8]) -> Result<()> {
        self.once(path, contents.len() as u64, contents)
    }

    fn once(&mut self, path: &str, bytes: u64, contents: impl std::io::Read) -> Result<()> {
        if self.written.insert(path.to_owned()) {
            let mut header = header(tar::EntryType::Regular, 0o644, bytes);
            self.tar.append_data(&mut header, path, contents).with_context(|| format!("could not write {path}"))?;
        }
        Ok(())
    }
}

fn descriptor(media_type: &str, blob: &Blob) -> Value {
    json!({ "mediaType": media_type, "digest": blob.digest.to_string(), "size": blob.bytes })
}

/// The machine's own, by the name that images use: what is put into an image was built or installed here.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Tree;
    use std::{collections::BTreeMap, io::Read as _};

    fn layer(text: &str) -> Arc<Layer> {
        Arc::new(Layer::write(&Tree::base().file("/text", text, 0o644)).unwrap())
    }

    /// An archive's files.
    fn archive(images: &[Image]) -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/image.tar");
        Archive::write(&path, images).unwrap();
        let bytes = fs::read(path).unwrap();
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).unwrap();
            let name = entry.path().unwrap().to_str().unwrap().to_owned();
            assert!(files.insert(name.clone(), contents).is_none(), "{name} is there twice");
        }
        (bytes, files)
    }

    fn read(files: &BTreeMap<String, Vec<u8>>, descriptor: &Value) -> Value {
        let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
        let contents = &files[&format!("blobs/{digest}")];
        assert_eq!(descriptor["size"], contents.len());
        serde_json::from_slice(contents).unwrap()
    }

    #[test]
    fn the_same_contents_give_the_same_bytes() {
        let image = || Image::new("local.test/a:1", [layer("a")]).entrypoint(["/a"]).label("b", "c").env("D", "e");
        let (first, _) = archive(&[image()]);
        assert_eq!(archive(&[image()]).0, first);
        assert_ne!(archive(&[image().entrypoint(["/b"])]).0, first);
    }

    #[test]
    fn leads_from_the_index_to_what_runs() {
        let image = Image::new("local.test/a:1", [layer("a"), layer("b")]).entrypoint(["/a"]).directory("/data");
        let (_, files) = archive(&[image]);
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let entry = &index["manifests"][0];
        assert_eq!(entry["annotations"][CONTAINERD_NAME], "local.test/a:1");
        let manifest = read(&files, entry);
        let config = read(&files, &manifest["config"]);
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], json!(["/a"]));
        assert_eq!(config["config"]["WorkingDir"], "/data");
        let layers: Vec<&Value> = manifest["layers"].as_array().unwrap().iter().map(|l| &l["digest"]).collect();
        assert_eq!(config["rootfs"]["diff_ids"], json!(layers));
    }

    #[test]
    fn every_blob_is_what_its_name_says() {
        let (_, files) = archive(&[Image::new("local.test/a:1", [layer("a"), layer("b")])]);
        let blobs: Vec<_> = files.iter().filter(|(name, _)| name.starts_with("blobs/")).collect();
        assert_eq!(blobs.len(), 4);
        for (name, contents) in blobs {
            assert_eq!(name, &Blob::of(contents).digest.path());
        }
    }

    #[test]
    fn images_share_layers() {
        let (common, one, other) = (layer("common"), layer("one"), layer("other"));
        let images = [("one", one), ("other", other)]
            .map(|(name, top)| Image::new(format!("local.test/{name}:1"), [Arc::clone(&common), top]));
        let (_, files) = archive(&images);
        // Three layers, two configurations, two manifests.
        assert_eq!(files.keys().filter(|name| name.starts_with("blobs/")).count(), 7);
    }
}
