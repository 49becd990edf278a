//! Settings of the bucket of `orrery backup --to` and `orrery restore --from`.

use crate::section;
use crate::values::{Secret, half_a_key};

section! {
    /// `[backup]`
    pub struct Backup {
        /// Region of an S3 bucket; empty uses the environment's.
        pub s3_region: String = String::new(), "a region, such as \"us-east-2\"";
        /// Address of another server with buckets than those of AWS, Google and Azure; empty uses the
        /// environment's, else theirs.
        pub endpoint: String = String::new(), "an address, such as \"https://s3.example.org\"";
        /// Access key ID for S3; empty uses the environment's credentials.
        pub s3_access_key_id: String = String::new(), "the public half of an access key";
        /// Secret access key of `s3_access_key_id`.
        pub s3_secret_access_key: Secret = Secret::default(), "the secret half of an access key";
    }
}

impl Backup {
    /// Returns an error message when settings contradict each other.
    pub fn validation_error(&self) -> Option<String> {
        half_a_key("backup", &self.s3_access_key_id, &self.s3_secret_access_key)
    }
}
