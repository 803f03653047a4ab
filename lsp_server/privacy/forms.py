# How tokens begin. What follows must look random.
BEGINNINGS = (
    ("Alibaba", "LTAI", "www.alibabacloud.com/help/en/ram/user-guide/create-an-accesskey-pair"),
    ("Atlassian", "ATATT|ATCTT|ATBB|BBDC-", "support.atlassian.com/bitbucket-cloud/docs/access-tokens/"),
    ("AWS", "ABSK", "docs.aws.amazon.com/bedrock/latest/userguide/api-keys.html"),
    ("Axiom", "xa[ap]t-", "axiom.co/docs/reference/tokens"),
    ("CircleCI", "CCIPAT_|CCIPRJ_", "circleci.com/docs/managing-api-tokens/"),
    ("Cloudflare", r"v1\.0-[0-9a-f]{24}-|cf[aku]t_", "developers.cloudflare.com/fundamentals/api/get-started/ca-keys/"),
    ("Contentful", "CFPAT-", "www.contentful.com/developers/docs/references/authentication/"),
    ("Databricks", "dapi", "docs.databricks.com/aws/en/dev-tools/auth/pat"),
    (
        "DeepSeek, OpenAI, OpenRouter and others",
        "sk-(?:proj-|svcacct-|admin-|or-v1-|lf-)?",
        "platform.openai.com/docs/api-reference/authentication",
    ),
    ("Docker", "dckr_[op]at_", "docs.docker.com/reference/api/hub/latest/"),
    ("Docker Swarm", "SWMTKN-1-|SWMKEY-1-", "docs.docker.com/engine/swarm/join-nodes/"),
    ("Doppler", r"dp\.(?:ct|pt|st|sa|scim|audit)\.", "docs.doppler.com/reference/auth-token-formats"),
    ("Dropbox", r"sl\.", "www.dropbox.com/developers/documentation/http/documentation"),
    ("Duffel", "duffel_(?:live|test)_", "duffel.com/docs/api/overview/test-mode"),
    (
        "Dynatrace",
        r"dt0[a-z]\d\d\.",
        "docs.dynatrace.com/docs/manage/identity-access-management/access-tokens-and-oauth-clients/access-tokens",
    ),
    ("EasyPost", "EZ[AT]K", "docs.easypost.com/docs/authentication"),
    ("Facebook", "EAA[A-Z]", "developers.facebook.com/docs/facebook-login/guides/access-tokens"),
    ("Figma", "fig[dou]r?_", "developers.figma.com/docs/rest-api/authentication/"),
    ("Fly.io", "fm[12][a-z]?_|fo1_", "fly.io/docs/security/tokens/"),
    (
        "GitHub",
        "gh[oprsu]_|github_pat_",
        "docs.github.com/en/authentication/keeping-your-account-and-data-secure/about-authentication-to-github",
    ),
    (
        "GitLab",
        "gl(?:pat|oas|dt|rt|rtr|cbt|ptt|ft|imt|agent|wt|soat|ffct)-|GR1348941",
        "docs.gitlab.com/security/tokens/",
    ),
    ("Google", r"AIza|ya29\.|GOCSPX-|1//0", "cloud.google.com/docs/authentication/api-keys"),
    ("Harness", r"(?:pat|sat)\.", "developer.harness.io/docs/platform/automation/api/add-and-manage-api-keys/"),
    ("HashiCorp", r"hv[bsr]\.|[A-Za-z0-9]{14}\.atlasv1\.", "developer.hashicorp.com/vault/docs/concepts/tokens"),
    ("Heroku", "HRKU-", "devcenter.heroku.com/articles/authentication"),
    ("Hugging Face", "hf_|api_org_", "huggingface.co/docs/hub/security-tokens"),
    ("JFrog", "AKCp?|cmVmd", "jfrog.com/help/r/jfrog-platform-administration-documentation/access-tokens"),
    ("key in base64", "LS0tLS1CRUdJTi", "datatracker.ietf.org/doc/html/rfc7468"),
    ("NVIDIA", "nvapi-", "-"),
    ("OpenShift", "sha256~", "-"),
    ("PASETO", r"v\d\.(?:local|public)\.", "github.com/paseto-standard/paseto-spec"),
    ("Plaid", "access-(?:production|development|sandbox)-", "plaid.com/docs/api/tokens/"),
    ("PlanetScale", "pscale_[a-z]+_", "planetscale.com/docs/api/reference/service-tokens"),
    ("PyPI", "pypi-AgE", "the help page of the Python Package Index, API tokens"),
    ("Riot", "RGAPI-", "developer.riotgames.com/docs/portal"),
    ("Scalingo", "tk-us-", "developers.scalingo.com/"),
    ("SendGrid", r"SG\.", "www.twilio.com/docs/sendgrid/ui/account-and-settings/api-keys"),
    ("Slack", "xox[abeoprs][.-]|xapp-", "docs.slack.dev/authentication/tokens"),
    ("Snyk", r"snyk_[a-z]+\.", "-"),
    ("Sourcegraph", "sg[pdk]_", "sourcegraph.com/docs/cli/how-tos/creating_an_access_token"),
    ("Square", "sq0[a-z]{3}-", "developer.squareup.com/docs/build-basics/access-tokens"),
    ("Stripe, ElevenLabs, Clerk", "[sr]k_(?:live_|test_|prod_)?|whsec_", "docs.stripe.com/keys"),
    ("Stytch", "secret-(?:live|test)-", "-"),
    ("Supabase", "sbp_|sb_secret_", "supabase.com/docs/guides/api/api-keys"),
    ("Tailscale", "tskey-[a-z]+-", "tailscale.com/kb/1277/key-prefixes"),
    ("Tavily", "tvly-", "docs.tavily.com/documentation/api-reference/introduction"),
    ("Together", "tgp_v1_", "-"),
    ("Trello", "ATTA", "developer.atlassian.com/cloud/trello/guides/rest-api/authorization/"),
    ("WakaTime", "waka_", "wakatime.com/developers"),
)
# Of any other service: a short word, some more, then characters that look random.
ANY_TOKEN = r"[A-Za-z][A-Za-z0-9]{1,11}[_-](?:[A-Za-z0-9]{1,10}[_-]){0,3}([A-Za-z0-9]{18,})[\w-]*"

# Tokens of other shapes.
SHAPES = (
    ("Airtable", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{32,}", "airtable.com/developers/web/guides/personal-access-tokens"),
    ("AWS", "A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{12,}", "docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html"),
    (
        "Azure",
        r"[\w~.-]{3}\dQ~[\w~.-]{31,34}",
        "learn.microsoft.com/en-us/purview/sit-sensitive-information-type-entity-definitions",
    ),
    (
        "Azure storage",
        r"(?:AccountKey|SharedAccessKey|SharedAccessSignature)=[\w+/=%&-]{20,}",
        "learn.microsoft.com/en-us/azure/storage/common/storage-configure-connection-string",
    ),
    ("Discord", r"[MNO][\w-]{22,26}\.[\w-]{6}\.[\w-]{26,}", "discord.com/developers/docs/reference#authentication"),
    (
        "Discord webhook",
        r"(?:https://)?discord(?:app)?\.com/api/webhooks/\d+/[\w-]{40,}",
        "discord.com/developers/docs/resources/webhook",
    ),
    (
        "JSON Web Token",
        r"eyJ[\w-]{12,}\.[\w-]{8,}(?:\.[\w-]*)*|eyJ[\w+/-]{30,}=*",
        "datatracker.ietf.org/doc/html/rfc7519",
    ),
    ("JSON Web Key", r'(?:d|p|q|dp|dq|qi|k)"\s*:\s*"[\w-]{40,}', "datatracker.ietf.org/doc/html/rfc7518#section-6"),
    ("Lob", "(?:live|test)_[0-9a-f]{30,}", "docs.lob.com/"),
    ("Mailchimp", r"[0-9a-f]{32}-us\d{1,2}", "mailchimp.com/developer/marketing/docs/fundamentals/"),
    ("Mapbox", r"[st]k\.eyJ[\w-]{20,}\.[\w-]{16,}", "docs.mapbox.com/help/glossary/access-token/"),
    (
        "NATS",
        "S[UNAOCX][A-Z2-7]{50,}",
        "docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/nkey_auth",
    ),
    ("NuGet", "oy2[a-z0-9]{40,}", "learn.microsoft.com/en-us/nuget/nuget-org/scoped-api-keys"),
    ("PayPal", r"access_token\$\w+\$\w{4,}[\w$]*", "developer.paypal.com/braintree/docs/"),
    (
        "Slack webhook",
        r"(?:https://)?hooks\.slack\.com/(?:services|workflows|triggers)/[\w/+]{20,}",
        "docs.slack.dev/messaging/sending-messages-using-incoming-webhooks/",
    ),
    (
        "Teams webhook",
        r"(?:https://)?\w*\.?webhook\.office\.com/webhookb2/[\w@/-]{36,}",
        "learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/add-incoming-webhook",
    ),
    ("Telegram", r"\d{8,10}:[\w-]{33,}", "core.telegram.org/bots/api#authorizing-your-bot"),
    ("Twilio", "(?:SK|AC)[0-9a-f]{32}", "www.twilio.com/docs/iam/api-keys"),
)

# What an identifier says next, in half bits from a (0) to z (12.5), measured in the names and words of code in seven
# languages: a row for each character before (a to z, a digit, anything else), a column for each after it.
BITS = """
skhispjwlvohjhujwhifmoonmspj
gpnphrrwijrfpshovkjpgruvkwnh
hrmphrugkzhjotfnujngkrwtoyoi
iqqkfqpqgtvlrojpxklnksurnznd
jpjiomnvpvvjlhqnnghirmmknwre
hrpqiiqvfxuiqpgqwimkjuvsnzne
kspteqljixymnjlqyijlltxxrupd
futqfsuvgzuqnriqykoimvtyouod
lmjjjljxuxsjjehlsmhhpjznzlrm
htqtertrlsrprignsrfripkxuvnh
lrqpdtnrhwunqopsuqkqprkrqzod
hprkfiotgxtitsgpzskkjqvzlzpf
flspetvwiysnkmhhztkqktzwpsof
htjhhlhskuposkjnvthgmmttrvqf
mmjjsmlymuniielizgkkimkptvti
gtrngqrlkzqisrhkyhkhirwulzog
ooqprpttquqiqosponnqbtptuwnf
hslleomuhznolnhrzkjjmmrtlzre
luksfrqkizmorrkjprjfksqxmzpe
iumqfqvigzwopsinziklmvrskxpd
ljkmhlnwkzuhigpiyhifvwzszwkl
fursctpvfyzsommrvspqtvwsvykh
gsrqhstlfzpprjisuhkptznxwxqd
mrjrirupjvypmqogvsqeuuvnmvld
rnnsmtmwpwzkkjkfyrjkvurysspc
irrubswtjvupusjqtsptrsrrmlng
mmnjnnsrrrrqqqsqurpqrstsvscd
jkhjjjlkjonkjkkipighlllprrnl
"""
