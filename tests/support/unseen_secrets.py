"""Forms of secrets that no rule was written for. They measure what the rules find that nobody tuned to them.

- `GITLEAKS`: tokens and names of 60 rules of gitleaks, drawn at random before our rules were written.
- `UNSEEN`: places of values in languages, tools and files of settings, written when the rules were finished, and
  measured then. The values are of many kinds in turn, words with digits among them.

Do not look at them while you change a rule: a form that is missing there belongs into `tests.support.secret_forms`.
No secret here was ever valid.
"""

from itertools import cycle
from pathlib import Path

from tests.support.secret_forms import Secret, fill

# fmt: off
GITLEAKS: tuple[Secret, ...] = tuple(Secret(form, fill(notation, form), template) for form, notation, template in (
    ("linear-client-secret", "{H32}", 'linear_client_secret = "•"\n'),
    ("finnhub-access-token", "{L20}", "finnhub_access_token=•\n"),
    ("intra42-client-secret", "s-s4t2ud-{H64}", 'use("•")\n'),
    ("linear-api-key", "lin_api_{L40}", "x: •\n"),
    ("travisci-access-token", "{L22}", "const travisciAccessToken = '•';\n"),
    ("finicity-api-token", "{H32}", 'os.environ["FINICITY_API_TOKEN"] = "•"\n'),
    ("sendinblue-api-token", "xkeysib-{H64}-{L16}", 'use("•")\n'),
    ("cohere-api-token", "{A40}", 'cohere_api_token = "•"\n'),
    ("nytimes-access-token", "{L32}", "nytimes_access_token=•\n"),
    ("gocardless-api-token", "live_{L40}", "gocardless_api_token: •\n"),
    ("new-relic-user-api-key", "NRAK-{L27}", '"new_relic_user_api_key": "•",\n'),
    ("flickr-access-token", "{L32}", "const flickrAccessToken = '•';\n"),
    ("launchdarkly-access-token", "{L40}", 'os.environ["LAUNCHDARKLY_ACCESS_TOKEN"] = "•"\n'),
    ("intercom-api-key", "{L60}", "export INTERCOM_API_KEY=•\n"),
    ("privateai-api-token", "{L32}", 'privateai_api_token = "•"\n'),
    ("flutterwave-secret-key", "FLWSECK_TEST-{H32}-X", "x: •\n"),
    ("lob-api-key", "live_{H35}", "lob_api_key: •\n"),
    ("sumologic-access-token", "{L64}", '"sumologic_access_token": "•",\n'),
    ("openshift-user-token", "sha256~{W43}", 'use("•")\n'),
    ("postman-api-token", "PMAK-{H24}-{H34}", "x: •\n"),
    ("sentry-user-token", "sntryu_{H64}", 'value = "•"\n'),
    ("mailgun-signing-key", "{H32}-{H8}-{H8}", 'mailgun_signing_key = "•"\n'),
    ("facebook-secret", "{H32}", "facebook_secret=•\n"),
    ("twitch-api-token", "{L30}", "twitch_api_token: •\n"),
    ("plaid-api-token", "access-sandbox-{H8}-{H4}-{H4}-{H4}-{H12}", '"plaid_api_token": "•",\n'),
    ("netlify-access-token", "{L40}", "const netlifyAccessToken = '•';\n"),
    ("mattermost-access-token", "{L26}", 'os.environ["MATTERMOST_ACCESS_TOKEN"] = "•"\n'),
    ("linkedin-client-secret", "{L16}", "export LINKEDIN_CLIENT_SECRET=•\n"),
    ("hubspot-api-key", "{D8}-{D4}-{D4}-{D4}-{D12}", 'hubspot_api_key = "•"\n'),
    ("heroku-api-key", "{H8}-{H4}-{H4}-{H4}-{H12}", "heroku_api_key=•\n"),
    ("new-relic-browser-api-token", "NRJS-{H19}", "new_relic_browser_api_token: •\n"),
    ("airtable-personnal-access-token", "pat{A14}.{H64}", "x: •\n"),
    ("planetscale-password", "pscale_pw_{W32}", 'value = "•"\n'),
    ("readme-api-token", "rdme_{L70}", "# •\n"),
    ("kraken-access-token", "{L80}", "export KRAKEN_ACCESS_TOKEN=•\n"),
    ("settlemint-personal-access-token", "sm_pat_{A16}", "x: •\n"),
    ("finicity-client-secret", "{L20}", "finicity_client_secret=•\n"),
    ("plaid-secret-key", "{L30}", "plaid_secret_key: •\n"),
    ("freemius-secret-key", "sk_{A29}", 'use("•")\n'),
    ("sidekiq-secret", "{H8}:{H8}", "const sidekiqSecret = '•';\n"),
    ("scalingo-api-token", "tk-us-{W48}", 'value = "•"\n'),
    ("planetscale-oauth-token", "pscale_oauth_{W32}", "# •\n"),
    ("rubygems-api-token", "rubygems_{H48}", 'use("•")\n'),
    ("facebook-access-token", "{D15}%{L27}", "x: •\n"),
    ("1password-secret-key", "A3-{U6}-{U6}-{U5}-{U5}-{U5}-{U5}", 'value = "•"\n'),
    ("clojars-api-token", "CLOJARS_{L60}", "# •\n"),
    ("kucoin-secret-key", "{H8}-{H4}-{H4}-{H4}-{H12}", "const kucoinSecretKey = '•';\n"),
    ("airtable-api-key", "{L17}", 'os.environ["AIRTABLE_API_KEY"] = "•"\n'),
    ("sourcegraph-access-token", "sgp_local_{H40}", 'value = "•"\n'),
    ("sendbird-access-token", "{H40}", 'sendbird_access_token = "•"\n'),
    ("hashicorp-tf-api-token", "{L14}.atlasv1.{L60}", 'use("•")\n'),
    ("planetscale-api-token", "pscale_tkn_{W32}", "x: •\n"),
    ("dropbox-api-token", "{L15}", '"dropbox_api_token": "•",\n'),
    ("twitter-api-key", "{L25}", "const twitterApiKey = '•';\n"),
    ("twitter-bearer-token", "AAAAAAAAAAAAAAAAAAAAAA{A80}", 'os.environ["TWITTER_BEARER_TOKEN"] = "•"\n'),
    ("mapbox-api-token", "pk.{L60}.{L22}", "export MAPBOX_API_TOKEN=•\n"),
    ("bittrex-access-key", "{L32}", 'bittrex_access_key = "•"\n'),
    ("codecov-access-token", "{L32}", "codecov_access_token=•\n"),
    ("contentful-delivery-api-token", "{L43}", "contentful_delivery_api_token: •\n"),
    ("dynatrace-api-token", "dt0c01.{L24}.{L64}", "x: •\n"),
))
# fmt: on


_VALUES = (
    *(
        "{A14}",
        "Gra" + "nite2031!",
        "{H32}",
        "{A14}",
        "{L20}",
        "{B22}==",
        "{A14}",
        "{A24}",
        "t1g" + "erL1ly",
        "x{A4}#{A3}!{A4}",
    ),
    *("{A16}", "Blue" + "Heron#77"),
)
UNSEEN: tuple[Secret, ...] = tuple(
    Secret(line, fill(value, line), line.replace("⏎", "\n") + "\n")
    for line, value in zip(
        Path(__file__).with_name("unseen_places.txt").read_text(encoding="utf-8").splitlines(),
        cycle(_VALUES),
        strict=False,
    )
)
