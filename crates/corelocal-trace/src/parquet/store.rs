//! Object stores: `s3://BUCKET/PREFIX`, by the crate `object_store`.
//!
//! The place of the store and the credentials are those of other programs: `AWS_ENDPOINT_URL`, `AWS_REGION`,
//! `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{ObjectStore, PutPayload, WriteMultipart};
use url::Url;

/// The size of a part of a large file.
const PART: usize = 8 << 20;
/// Parts that are under way at once.
const AT_ONCE: usize = 4;

/// Copies files below a folder to an object store, with their names from there on. Returns how many.
///
/// # Errors
/// The address is wrong, or the store refuses.
pub fn upload(folder: &Path, files: &[PathBuf], to: &str) -> io::Result<usize> {
    let url = Url::parse(to).map_err(|error| wrong(to, &error))?;
    if url.scheme() != "s3" {
        return Err(wrong(to, &"the only object store is s3://BUCKET/PREFIX"));
    }
    let bucket = url.host_str().ok_or_else(|| wrong(to, &"a bucket is missing"))?;
    let store = AmazonS3Builder::from_env()
        // A store on this machine has no certificate.
        .with_allow_http(
            std::env::var("AWS_ENDPOINT_URL").is_ok_and(|url| url.starts_with("http://")),
        )
        .with_bucket_name(bucket)
        .build()
        .map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned();
        let key = Key::from_url_path(format!("{}/{name}", url.path().trim_end_matches('/')))
            .map_err(io::Error::other)?;
        runtime.block_on(put(&store, &key, path))?;
    }
    Ok(files.len())
}

fn wrong(to: &str, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{to}: {why}"))
}

async fn put(store: &dyn ObjectStore, key: &Key, path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() <= PART as u64 {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        store.put(key, PutPayload::from(bytes)).await.map_err(io::Error::other)?;
        return Ok(());
    }
    let upload = store.put_multipart(key).await.map_err(io::Error::other)?;
    let mut upload = WriteMultipart::new_with_chunk_size(upload, PART);
    let mut bytes = vec![0; PART];
    loop {
        let len = file.read(&mut bytes)?;
        if len == 0 {
            break;
        }
        upload.wait_for_capacity(AT_ONCE).await.map_err(io::Error::other)?;
        upload.write(&bytes[..len]);
    }
    upload.finish().await.map_err(io::Error::other)?;
    Ok(())
}
