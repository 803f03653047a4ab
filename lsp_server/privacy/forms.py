"""The forms of secrets, as data: how tokens begin, their other shapes, and where values of names stand.

`lsp_server.privacy.detectors` makes expressions for RE2 of them, which knows no lookaround. Beside a form is the page
of the service about its tokens, or a dash where none is known. Tokens of many more services, such as `npm_…`, are
found without a row, as of any service.
"""

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

# Where values stand, as (the name if the place has none, whether the value is in quotes, the place). The first group of
# a place is the name if it has one, another one is the value. A string that is not closed is a value, too.
_NAME = (
    r"([\w.$-]*(?i:passw(?:or)?d|passwort|passphrase|passcode|pswd|pwd|pass|pw|secret|credential|key|token|auth|jwt|bearer"
    r"|cookie|session|salt|sig|otp|pin|dsn)[\w.$-]*)"
)
_QUOTED = (  # a string may go on in the next one
    r"[bBfFrRuU@$]{0,2}(?:\\+[\"']([^\"'\\\n]*)|\"\"\"([^\"]+)|'''([^']+)"
    r"|\"((?:(?:[^\"\\\n]|\\.)+\"[\s+\\]*[bfru]?\")*(?:[^\"\\\n]|\\.)*)|'((?:(?:[^'\\\n]|\\.)+'[\s+\\]*[bfru]?')*(?:[^'\\\n]|\\.)*)"
    r"|`([^`\n]*))"
)
_TYPE = r"\s{0,4}:\s{0,4}&?[A-Za-z][\w.\[\]| ,?&]{0,60}"
_TO = (
    rf"\\*[\"'`]?[\])]?(?:\[\w*\]|\s[a-z]\w{{0,20}})?(?:{_TYPE}=|\s{{0,20}}(?::=|\?=|=>|[=!]==?|[:=]|or\b|\|\||\?[?:]))"
)
_OPEN = (
    r"[\s(\[{\\]{0,40}(?:(?:new\s+)?(?:\w+\.)*(?:SecretStr|SecretBytes|Secret|Field|str|String(?:::from)?|bytes|b64decode|\[\]byte)\(\s*"
    r"(?:default\s*=\s*)?)?"
)
_CALL = r"(?i:get|set|env|define|option|property|attr|argument|put|fetch)\w*!?\(\s*(?:\w+\s*,\s*)?"
_PAIR = rf"(?i:key|name)[\"']?\s*[=:]\s*[\"']?{_NAME}[\"']?,?\s+[\"']?value[\"']?\s*[=:]\s*"
_HEADER = (
    r"(?i:authorization|cookie|x-[\w-]*(?:key|token|secret|auth)[\w-]*|api-key)(?:[\"']\]\s*=|[\"']?\s*[:,])\s*"
    r"[bfru]?[\"']?"
)
PLACES = (
    ("", True, rf"{_NAME}{_TO}{_OPEN}{_QUOTED}"),
    ("", True, rf"{_NAME}\s*[:=]\s*\[\s*[bfru]?[\"']([^\]]*)"),
    (
        "",
        True,
        rf"{_CALL}[\"'-]{{1,3}}{_NAME}[\"']\s*,\s*(?:\w+\s*=\s*[\w.]+\s*,\s*){{0,4}}(?:default\s*=\s*)?{_QUOTED}",
    ),
    ("", True, rf"(?i:set|with){_NAME}\(\s*{_QUOTED}"),
    ("", True, rf"{_NAME}[\"']?>\s*([^<>\s\"'{{(][^<>]*)</"),
    ("", True, rf"<{_NAME}\s+value={_QUOTED}"),
    ("", True, rf"{_NAME}\"\s*\{{[^{{}}]{{0,200}}\bdefault\s*=\s*{_QUOTED}"),
    ("", True, rf"#\s*define\s+{_NAME}\s+{_QUOTED}"),
    ("", True, rf"\$\{{{_NAME}:-?([^}}\s\"'`?+-][^}}\s\"'`]*)"),
    ("", True, _PAIR + _QUOTED),
    ("", False, _PAIR + r"([^\s\"',{}]+)"),
    (
        "",
        False,
        rf"(?m)^[ \t#/;*<>!-]*(?:(?i:export|set|setx|env|arg|local|readonly)[ \t]+)?[\"']?{_NAME}[\"']?[ \t]*"
        r"(?:[?:]?=|:)[ \t]*([^\s\"'`]+)(?:[ \t]+[#;].*)?[ \t]*$",
    ),
    ("", False, rf"(?m)^[ \t#]*(?:ENV|ARG)[ \t]+{_NAME}[ \t]+([^\s\"'`]+)"),
    ("", False, rf"(?m)(?:^|[?&;:/\"'\s=]){_NAME}=([^&;\s\"'`]+)"),
    ("", False, rf"[{{,]\s*{_NAME}:\s*([^\s,{{}}\"'`]+)\s*[,}}]"),
    ("", False, rf"{_NAME}\s+is\s+([^\s\d]*\d\S*)"),
    ("", False, rf"(?m)^[ \t]*{_NAME}[ \t]+(\S+)[ \t]*$"),
    ("", False, rf"--{_NAME}[= ]([^\s\"'`=-][^\s\"'`]*)"),
    ("", False, rf"{_NAME}[\"']?:[ \t]*[|>][+-]?[ \t]*\n[ \t]+(\S+)"),
    ("", False, rf"\blogin\s+\S+\s+{_NAME}\s+(\S+)"),
    ("token", False, _HEADER + r"(?i:session=)?([^\s\"'`\\]+)"),
    ("password", True, _HEADER + r"(?i:bearer|basic|token|digest|apikey|key)\s+([^\s\"'`\\]+)"),
    ("password", True, r"(?i:password|identified by)\s+'([^'\n]*)"),
    ("password", True, rf"(?i:auth|login|credential)\w*\s*=?\s*\(\s*[bfru]?[\"'][^\"'\n]*[\"']\s*,\s*{_QUOTED}"),
    ("password", True, r"[a-zA-Z][\w+.-]*://[^\s/:@\"'`<>]*:([^\s\"'`<>]+)@"),
    ("password", True, r"jdbc:oracle:\w+:[^/\s\"']+/([^@\s\"']+)@"),
    ("password", True, r"\bcurl\b.*\s(?:-u|--user)\s+[^\s:]+:(\S+)"),
    ("password", True, r"\b(?:mysql|sshpass|redis-cli)\b.*\s-[pa]\s?([^\s-]\S*)"),
)

# The pairs of letters that words have most. Measured in the names of Python's standard library, pairs of a word of
# twelve characters or more are in this list for 60 % (95 of 100 words); of random characters, for less than 45 % (99).
COMMON_PAIRS = """
te es st er in re on at le ti en se or co de al nt et ar me ed it ra ec ng tr ro li io nd ea as an th ta ct ri fi lo ge
ac ne ex pa ce un na il ve ad to si is ss di ca ma la pe ch ck od am rt no ns rs om nc el mp he ha pr ic ts oc ll ut cl
ur ul ou em rr pt ef op ig ba mo wi fo su ke po ab ep ni ot pl tt bl lt im ho da ai va tc bu ol ag ty so sp id cr os fa
us do xt ue tu sh up ip um ie ap ze ff ry sc ir ow iz ru nf
"""
