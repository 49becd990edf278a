//! The cryptography of tokens, for which ring takes the place of the JWT library's own: signing with
//! HS256, and verifying HS256, EdDSA and RS256.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Signer, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use ring::hmac;
use ring::signature::{ED25519, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};

/// Keys in the format JWK are not supported.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs the cryptography for this process. Must be called before tokens are signed or verified.
pub(super) fn install() {
    // It fails where it is installed already.
    let _ = PROVIDER.install_default();
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    match algorithm {
        Algorithm::HS256 => Ok(Box::new(Secret::new(key.as_bytes()))),
        _ => Err(ErrorKind::UnsupportedAlgorithm.into()),
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let key = key.try_get_as_bytes()?;
    let public =
        |ring| Public { algorithm: *algorithm, key: UnparsedPublicKey::new(ring, key.into()) };
    match algorithm {
        Algorithm::HS256 => Ok(Box::new(Secret::new(key))),
        Algorithm::EdDSA => Ok(Box::new(public(&ED25519))),
        Algorithm::RS256 => Ok(Box::new(public(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY))),
        _ => Err(ErrorKind::UnsupportedAlgorithm.into()),
    }
}

/// A key for HS256.
struct Secret(hmac::Key);

impl Secret {
    fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

impl Signer<Vec<u8>> for Secret {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl Verifier<Vec<u8>> for Secret {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        hmac::verify(&self.0, message, signature).map_err(Error::from_source)
    }
}

impl JwtSigner for Secret {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl JwtVerifier for Secret {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

/// A public key with its algorithm.
struct Public {
    algorithm: Algorithm,
    key: UnparsedPublicKey<Vec<u8>>,
}

impl Verifier<Vec<u8>> for Public {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        self.key.verify(message, signature).map_err(Error::from_source)
    }
}

impl JwtVerifier for Public {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use jsonwebtoken::crypto;

    use super::*;

    // RFC 7515, appendices A.1 and A.2.
    const HS256_KEY: &str =
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    const HS256_MESSAGE: &str = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const HS256_SIGNATURE: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const RS256_KEY: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAofgWCuLjybRlzo0tZWJj
NiuSfb4p4fAkd/wWJcyQoTbji9k0l8W26mPddxHmfHQp+Vaw+4qPCJrcS2mJPMEz
P1Pt0Bm4d4QlL+yRT+SFd2lZS+pCgNMsD1W/YpRPEwOWvG6b32690r2jZ47soMZo
9wGzjb/7OMg0LOL+bSf63kpaSHSXndS5z5rexMdbBYUsLA9e+KXBdQOS+UTo7WTB
EMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6/I5IhlJH7aGhyxX
FvUK+DWNmoudF8NAco9/h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXp
oQIDAQAB
-----END PUBLIC KEY-----";
    const RS256_MESSAGE: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const RS256_SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    // RFC 8037, appendix A.4.
    const ED_KEY: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
-----END PUBLIC KEY-----";
    const ED_MESSAGE: &str = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    const ED_SIGNATURE: &str =
        "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";

    #[test]
    fn the_examples_of_the_standards_are_verified_and_no_other_signatures() {
        install();
        let secret = URL_SAFE_NO_PAD.decode(HS256_KEY).unwrap();
        let signed = crypto::sign(
            HS256_MESSAGE.as_bytes(),
            &EncodingKey::from_secret(&secret),
            Algorithm::HS256,
        );
        assert_eq!(signed.unwrap(), HS256_SIGNATURE);
        let rsa = DecodingKey::from_rsa_pem(RS256_KEY.as_bytes()).unwrap();
        let ed = DecodingKey::from_ed_pem(ED_KEY.as_bytes()).unwrap();
        let secret = DecodingKey::from_secret(&secret);
        for (algorithm, key, message, signature) in [
            (Algorithm::HS256, &secret, HS256_MESSAGE, HS256_SIGNATURE),
            (Algorithm::RS256, &rsa, RS256_MESSAGE, RS256_SIGNATURE),
            (Algorithm::EdDSA, &ed, ED_MESSAGE, ED_SIGNATURE),
        ] {
            let verifies = |signature: &[u8], message: &str| {
                let signature = URL_SAFE_NO_PAD.encode(signature);
                crypto::verify(&signature, message.as_bytes(), key, algorithm).unwrap()
            };
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            assert!(verifies(&signature, message), "{algorithm:?}");
            assert!(!verifies(&signature, &message[1..]), "{algorithm:?}");
            assert!(
                !verifies(&signature[1..], message) && !verifies(&[], message),
                "{algorithm:?}"
            );
            for at in 0..signature.len() {
                let mut altered = signature.clone();
                altered[at] ^= 1;
                assert!(!verifies(&altered, message), "{algorithm:?}, byte {at}");
            }
        }
        for algorithm in [Algorithm::HS384, Algorithm::ES256, Algorithm::PS256, Algorithm::RS512] {
            assert!(crypto::verify("", b"", &secret, algorithm).is_err(), "{algorithm:?}");
        }
    }
}
