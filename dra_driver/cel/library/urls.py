# SPDX-License-Identifier: Apache-2.0
"""The functions of URLs: url("https://example.com:80/a?b=c").getHost(), …

Source: k8s.io/apiserver pkg/cel/library/urls.go, pkg/cel/url.go.
"""

from collections.abc import Callable

from dra_driver.cel import values, work
from dra_driver.cel.failures import EvaluationError, no_such_overload
from dra_driver.cel.library import weburl
from dra_driver.cel.library.weburl import UrlError, WebUrl
from dra_driver.cel.overloads import Overload
from dra_driver.cel.values import LiteralMap, Opaque

TYPE = "kubernetes.URL"


class URL(Opaque, frozen=True, eq=False):
    """A parsed URL: the CEL type kubernetes.URL."""

    url: WebUrl

    type_name = TYPE
    go_name = "cel.URL"

    def equals(self, other: object) -> bool:
        """Return whether the texts of the URLs are equal. Raises EvaluationError for another type."""
        if not isinstance(other, URL):
            raise no_such_overload()
        return str(self) == str(other)

    def __str__(self) -> str:
        return weburl.to_text(str(self.url))


def _url(text: str) -> URL:
    work.require_parseable(text)
    content = weburl.to_bytes(text)
    try:
        weburl.parse_request(content)
        return URL(weburl.parse(content))
    except UrlError as error:
        raise EvaluationError(f"URL parse error during conversion from string: {error}") from error


def _is_url(text: str) -> bool:
    return problem(text) is None


def problem(text: str) -> str | None:
    """Return the error message if the text is no absolute URL or path, else None. Raises Aborted if it is too long."""
    work.require_parseable(text)
    try:
        weburl.parse_request(weburl.to_bytes(text))
    except UrlError as error:
        return str(error)
    return None


def _query(value: URL) -> LiteralMap:
    return LiteralMap(
        (weburl.to_text(name), [weburl.to_text(item) for item in found])
        for name, found in value.url.parameters().items()
    )


def _getter(read: Callable[[WebUrl], str]) -> Callable[[URL], str]:
    return lambda value: weburl.to_text(read(value.url))


OVERLOADS = (
    Overload("url", "string_to_url", values.STRING, _url),
    Overload("isURL", "is_url_string", values.STRING, _is_url),
    Overload("getScheme", "url_get_scheme", TYPE, _getter(lambda url: url.scheme)),
    Overload("getHost", "url_get_host", TYPE, _getter(lambda url: url.host)),
    Overload("getHostname", "url_get_hostname", TYPE, _getter(lambda url: url.host_and_port()[0])),
    Overload("getPort", "url_get_port", TYPE, _getter(lambda url: url.host_and_port()[1])),
    Overload("getEscapedPath", "url_get_escaped_path", TYPE, _getter(WebUrl.escaped_path)),
    Overload("getQuery", "url_get_query", TYPE, _query),
)
