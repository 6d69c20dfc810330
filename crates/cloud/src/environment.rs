//! What the surroundings of the process say of clouds, by the names that the clouds' own tools use.

/// What the surroundings say. Endpoints are given where a cloud is reached by another way than the public one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `AWS_ROLE_ARN`: the role of a web identity.
    pub role: Option<String>,
    /// `AWS_WEB_IDENTITY_TOKEN_FILE`: the file with its token.
    pub token_file: Option<String>,
    /// `AWS_ENDPOINT_URL_EC2`.
    pub ec2: Option<String>,
    /// `AWS_ENDPOINT_URL_STS`.
    pub sts: Option<String>,
    /// `AWS_EC2_METADATA_SERVICE_ENDPOINT`.
    pub metadata: Option<String>,
    /// `AZURE_AUTHORITY_HOST`: who gives tokens.
    pub authority: Option<String>,
    /// `AZURE_RESOURCE_MANAGER_ENDPOINT`.
    pub resource_manager: Option<String>,
    /// `HTTPS_PROXY`: the proxy by which clouds are asked. It may hold a password.
    pub https_proxy: Option<String>,
    /// `NO_PROXY`: who is asked without it.
    pub no_proxy: Option<String>,
}

impl Environment {
    /// The environment of this process.
    pub fn of_process() -> Self {
        let get = |key: &str| std::env::var(key).ok().filter(|value| !value.is_empty());
        Environment {
            role: get("AWS_ROLE_ARN"),
            token_file: get("AWS_WEB_IDENTITY_TOKEN_FILE"),
            ec2: get("AWS_ENDPOINT_URL_EC2"),
            sts: get("AWS_ENDPOINT_URL_STS"),
            metadata: get("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
            authority: get("AZURE_AUTHORITY_HOST"),
            resource_manager: get("AZURE_RESOURCE_MANAGER_ENDPOINT"),
            https_proxy: get("HTTPS_PROXY").or_else(|| get("https_proxy")),
            no_proxy: get("NO_PROXY").or_else(|| get("no_proxy")),
        }
    }
}
