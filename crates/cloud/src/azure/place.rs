//! Which of the clouds of Azure it is, and where each is asked. Pure.

use serde::Deserialize;

use crate::Environment;

/// Which of the clouds of Azure it is.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Its name, such as `AzureUSGovernmentCloud`; the public one if there is none.
    pub cloud: Option<String>,
    /// The resource manager of an Azure Stack.
    pub manager: Option<String>,
}

/// The name of every Azure Stack.
const STACK: &str = "AzureStackCloud";

/// Clouds by name: their resource manager, and who gives tokens for it.
const CLOUDS: [(&str, &str, &str); 3] = [
    (
        "AzurePublicCloud",
        "https://management.azure.com",
        "https://login.microsoftonline.com",
    ),
    (
        "AzureUSGovernmentCloud",
        "https://management.usgovcloudapi.net",
        "https://login.microsoftonline.us",
    ),
    (
        "AzureChinaCloud",
        "https://management.chinacloudapi.cn",
        "https://login.chinacloudapi.cn",
    ),
];

/// Who gives tokens, and what they are good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) authority: String,
    pub(super) audience: String,
}

/// Versions of the APIs of machines and of networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Versions {
    pub(super) machines: &'static str,
    pub(super) networks: &'static str,
}

/// An Azure Stack has older ones than the clouds: those of its profile 2020-09-01-hybrid.
const OF_STACK: Versions = Versions {
    machines: "2020-06-01",
    networks: "2018-11-01",
};
const OF_CLOUDS: Versions = Versions {
    machines: "2024-07-01",
    networks: "2024-05-01",
};

/// Where a cloud is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoints {
    /// The resource manager.
    pub(super) manager: String,
    /// None if the resource manager itself has to be asked: only an Azure Stack knows.
    pub(super) login: Option<Login>,
    pub(super) versions: Versions,
}

impl Endpoints {
    /// Where a cloud is asked: as the surroundings say, else as everybody knows. Or what is not known of it.
    pub(super) fn of(place: &Place, environment: &Environment) -> Result<Self, String> {
        let plain = |text: &str| text.trim_end_matches('/').to_owned();
        let name = place.cloud.as_deref().filter(|name| !name.is_empty());
        let name = name.unwrap_or(CLOUDS[0].0);
        let known = CLOUDS.iter().find(|(one, ..)| name.eq_ignore_ascii_case(one));
        let chosen = environment.resource_manager.as_ref().or(place.manager.as_ref());
        let manager = chosen.map(|text| plain(text)).filter(|text| !text.is_empty());
        let manager = manager.or(known.map(|(_, manager, _)| (*manager).to_owned()));
        let manager = manager.ok_or_else(|| {
            format!(
                "it is not known where the cloud `{name}` is asked: Infrastructure `cluster` has no \
                 status.platformStatus.azure.armEndpoint; AZURE_RESOURCE_MANAGER_ENDPOINT in the manager's environment \
                 names it too"
            )
        })?;
        let authority = environment.authority.as_deref().map(plain);
        let authority = authority.or(known.map(|(.., authority)| (*authority).to_owned()));
        Ok(Endpoints {
            login: authority.map(|authority| Login {
                authority,
                audience: manager.clone(),
            }),
            manager,
            versions: match name.eq_ignore_ascii_case(STACK) {
                true => OF_STACK,
                false => OF_CLOUDS,
            },
        })
    }
}

/// What a resource manager says of its cloud.
#[derive(Deserialize)]
struct Metadata {
    authentication: Authentication,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Authentication {
    login_endpoint: String,
    audiences: Vec<String>,
}

/// Who gives tokens, by what the resource manager at `manager` says.
pub(super) fn login(manager: &str, text: &str) -> Result<Login, String> {
    let metadata: Metadata =
        serde_json::from_str(text).map_err(|error| format!("it does not say who gives tokens: {error}"))?;
    let Authentication {
        login_endpoint,
        audiences,
    } = metadata.authentication;
    let authority = login_endpoint.trim_end_matches('/').to_owned();
    // Whoever it is gets our secret.
    let is_private = |url: &str| url.starts_with("https://");
    if is_private(manager) && !is_private(&authority) {
        return Err("it names a giver of tokens without TLS".into());
    }
    if authority.to_ascii_lowercase().ends_with("/adfs") {
        return Err(
            "its tokens are given by AD FS, and only those of Microsoft Entra can be used here".into(),
        );
    }
    let audience = audiences.into_iter().next();
    let audience = audience.ok_or("it does not say what tokens are good for: its `audiences` is empty")?;
    Ok(Login { authority, audience })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(cloud: &str, manager: Option<&str>) -> Result<Endpoints, String> {
        let place = Place {
            cloud: Some(cloud.to_owned()),
            manager: manager.map(str::to_owned),
        };
        Endpoints::of(&place, &Environment::default())
    }

    #[test]
    fn each_cloud_has_its_own_manager_and_giver_of_tokens() {
        for (cloud, manager, authority) in CLOUDS {
            let found = endpoints(cloud, None).unwrap();
            let login = found.login.unwrap();
            assert_eq!(
                (found.manager.as_str(), login.authority.as_str()),
                (manager, authority)
            );
            assert_eq!((login.audience.as_str(), found.versions), (manager, OF_CLOUDS));
        }
        let public = Endpoints::of(&Place::default(), &Environment::default());
        assert_eq!(public, endpoints("", None));
        assert_eq!(public.unwrap().manager, CLOUDS[0].1);
    }

    #[test]
    fn an_azure_stack_is_asked_where_it_is_and_says_itself_who_gives_tokens() {
        let found = endpoints(STACK, Some("https://management.local.stack.example/")).unwrap();
        assert_eq!(found.manager, "https://management.local.stack.example");
        assert_eq!((found.login, found.versions), (None, OF_STACK));
        for unknown in [STACK, "AzureGermanCloud"] {
            let why = endpoints(unknown, None).unwrap_err();
            assert!(why.contains(unknown) && why.contains("armEndpoint"), "{why}");
        }
    }

    #[test]
    fn what_the_surroundings_say_comes_first() {
        let environment = Environment {
            authority: Some("https://login.example/".into()),
            resource_manager: Some("https://private.example/".into()),
            ..Environment::default()
        };
        let found = Endpoints::of(&Place::default(), &environment).unwrap();
        assert_eq!(found.manager, "https://private.example");
        let login = found.login.unwrap();
        assert_eq!(login.authority, "https://login.example");
        assert_eq!(login.audience, "https://private.example");
    }

    const MANAGER: &str = "https://management.local.stack.example";

    #[test]
    fn a_stack_names_who_gives_tokens_and_what_they_are_good_for() {
        let text = r#"{"galleryEndpoint": "https://g/", "authentication": {"loginEndpoint":
            "https://login.microsoftonline.com/", "audiences": ["https://management.contoso.example/4de1"]}}"#;
        let found = login(MANAGER, text).unwrap();
        assert_eq!(found.authority, "https://login.microsoftonline.com");
        assert_eq!(found.audience, "https://management.contoso.example/4de1");
        for end in 0..text.len() {
            assert!(login(MANAGER, &text[..end]).is_err(), "cut off after {end} bytes");
        }
        for (wrong, word) in [
            (
                text.replace("https://login.microsoftonline.com/", "https://adfs.local/adfs"),
                "AD FS",
            ),
            (text.replace("https://login", "http://login"), "TLS"),
            (
                text.replace(r#""https://management.contoso.example/4de1""#, ""),
                "audiences",
            ),
        ] {
            let why = login(MANAGER, &wrong).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
