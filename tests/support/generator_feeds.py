"""Feeds in the formats of widespread publishing software and sites, with invented texts."""

from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

_HTML = '<p>Bread &amp; <b>butter</b>&nbsp;— <a href="/b?a=1&amp;b=2">more</a> <img src="x.png" alt=""/></p>'
_SPACES = " ".join(
    f'xmlns:{prefix}="{uri}"'
    for prefix, uri in {
        "content": "http://purl.org/rss/1.0/modules/content/",
        "dc": "http://purl.org/dc/elements/1.1/",
        "atom": "http://www.w3.org/2005/Atom",
        "sy": "http://purl.org/rss/1.0/modules/syndication/",
        "slash": "http://purl.org/rss/1.0/modules/slash/",
        "wfw": "http://wellformedweb.org/CommentAPI/",
        "media": "http://search.yahoo.com/mrss/",
        "itunes": "http://www.itunes.com/dtds/podcast-1.0.dtd",
        "georss": "http://www.georss.org/georss",
        "googleplay": "http://www.google.com/schemas/play-podcasts/1.0",
        "podcast": "https://podcastindex.org/namespace/1.0",
        "webfeeds": "http://webfeeds.org/rss/1.0",
        "creativeCommons": "http://cyber.law.harvard.edu/rss/creativeCommonsRssModule.html",
    }.items()
)
_ATOM = 'xmlns="http://www.w3.org/2005/Atom"'
_RDF = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"'


class FeedFormat(NamedTuple):
    """The format of one program's feeds: the ``frame``, and an ``entry`` in which ``{n}`` is the entry's number."""

    frame: str
    entry: str


_RSS = f"""<?xml version="1.0" encoding="UTF-8"?>
<rss version="2.0" {_SPACES}><channel><title>News</title><link>https://example.com/</link>
<description>About</description>%s</channel></rss>"""
_FEED = f"""<?xml version="1.0" encoding="utf-8"?>
<feed {_ATOM} %s><title type="text">News</title><id>tag:example.com,2024:feed</id>
<link rel="alternate" type="text/html" href="https://example.com/"/>
<link rel="self" type="application/atom+xml" href="https://example.com/feed"/>%s</feed>"""

HABITS = {
    "a blog, with its image and its hub": FeedFormat(
        _RSS
        % """<atom:link href="https://example.com/feed/" rel="self" type="application/rss+xml"/>
<atom:link rel="hub" href="https://hub.example.com/"/><language>de-DE</language>
<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>2</sy:updateFrequency>
<image><url>https://example.com/i.png</url><title>News, pictured</title><link>https://example.com/i</link></image>%s""",
        f"""<item><title>Bread &#038; butter {{n}}</title><link>https://example.com/{{n}}/</link>
<comments>https://example.com/{{n}}/#respond</comments><dc:creator><![CDATA[Zoë]]></dc:creator>
<pubDate>Fri, 01 Mar 2024 0{{n}}:00:00 +0000</pubDate><category><![CDATA[Bread]]></category>
<guid isPermaLink="false">https://example.com/?p={{n}}</guid><description><![CDATA[{_HTML}]]></description>
<content:encoded><![CDATA[{_HTML * 3}]]></content:encoded><slash:comments>0</slash:comments></item>""",
    ),
    "a blog, paged and archived": FeedFormat(
        _FEED
        % (
            'xml:lang="en"',
            """<link rel="next" href="?page=2"/><link rel="prev-archive" href="/2023.atom"/>
<link rel="hub" href="https://hub.example.com/"/><author><name>Ann</name><uri>https://a.b/</uri></author>%s""",
        ),
        f"""<entry><id>tag:example.com,2024:{{n}}</id><published>2024-03-01T12:0{{n}}:00.001+01:00</published>
<updated>2024-03-01T12:0{{n}}:30.123-08:00</updated><category scheme="http://www.blogger.com/atom/ns#" term="bread"/>
<title type="text">Bread {{n}}</title><content type="html">{escape(_HTML)}</content>
<link rel="replies" type="application/atom+xml" href="https://example.com/{{n}}/comments" title="Post Comments"/>
<link rel="alternate" type="text/html" href="https://example.com/{{n}}.html" title="Bread {{n}}"/>
<author><name>Ann</name><email>noreply@blogger.com</email><gd:image xmlns:gd="http://schemas.google.com/g/2005"
 rel="http://schemas.google.com/g/2005#thumbnail" width="16" height="16" src="https://img1.blogblog.com/b16-rounded.gif"/>
</author><thr:total xmlns:thr="http://purl.org/syndication/thread/1.0">0</thr:total></entry>""",
    ),
    "videos": FeedFormat(
        _FEED
        % (
            'xmlns:yt="http://www.youtube.com/xml/schemas/2015" xmlns:media="http://search.yahoo.com/mrss/"',
            "<yt:channelId>UC1</yt:channelId><author><name>Ann</name><uri>https://v.example.com/</uri></author>%s",
        ),
        """<entry><id>yt:video:abc{n}</id><yt:videoId>abc{n}</yt:videoId><yt:channelId>UC1</yt:channelId>
<title>Bread {n}</title><link rel="alternate" href="https://v.example.com/watch?v=abc{n}"/>
<author><name>Ann</name><uri>https://v.example.com/</uri></author><published>2024-03-01T12:0{n}:00+00:00</published>
<updated>2024-03-02T12:0{n}:00+00:00</updated><media:group><media:title>Bread {n}</media:title>
<media:content url="https://v.example.com/v/{n}?version=3" type="application/x-shockwave-flash" width="6" height="3"/>
<media:thumbnail url="https://i.example.com/{n}.jpg" width="480" height="360"/>
<media:description>How to bake.
All of it.</media:description><media:community><media:starRating count="1" average="5.00" min="1" max="5"/>
<media:statistics views="12"/></media:community></media:group></entry>""",
    ),
    "a podcast": FeedFormat(
        _RSS
        % """<itunes:author>Ann</itunes:author><itunes:summary>All about bread</itunes:summary>
<itunes:owner><itunes:name>Ann</itunes:name><itunes:email>a@example.com</itunes:email></itunes:owner>
<itunes:image href="https://example.com/i.jpg"/><itunes:category text="Food"><itunes:category text="Bread"/>
</itunes:category><itunes:explicit>no</itunes:explicit><podcast:locked>yes</podcast:locked><ttl>60</ttl>%s""",
        f"""<item><title>Bread {{n}}</title><itunes:title>Bread</itunes:title><itunes:episode>{{n}}</itunes:episode>
<description><![CDATA[{_HTML}]]></description><content:encoded><![CDATA[{_HTML}]]></content:encoded>
<itunes:summary>About bread, {{n}}</itunes:summary><itunes:subtitle>Bread</itunes:subtitle>
<pubDate>Fri, 1 Mar 2024 0{{n}}:00:00 GMT</pubDate><guid isPermaLink="false">5f{{n}}-ab</guid>
<enclosure url="https://cdn.example.com/{{n}}.mp3?x=1&amp;y=2" length="123" type="audio/mpeg"/>
<itunes:duration>00:31:02</itunes:duration><itunes:keywords>bread, butter ,</itunes:keywords>
<itunes:image href="https://example.com/{{n}}.jpg"/><itunes:explicit>clean</itunes:explicit>
<podcast:transcript url="https://example.com/{{n}}.srt" type="application/srt"/></item>""",
    ),
    "a forge's releases": FeedFormat(
        _FEED
        % ('xmlns:media="http://search.yahoo.com/mrss/" xml:lang="en-US"', "<updated>2024-03-01T12:00:00Z</updated>%s"),
        f"""<entry><id>tag:forge.example.com,2008:Repository/1/v{{n}}</id><updated>2024-03-0{{n}}T12:00:00Z</updated>
<link rel="alternate" type="text/html" href="https://forge.example.com/a/b/releases/tag/v{{n}}"/><title>v{{n}}</title>
<content type="html">{escape(_HTML)}</content><author><name>ann</name></author>
<media:thumbnail height="30" width="30" url="https://avatars.example.com/u/1?s=60&amp;v=4"/></entry>""",
    ),
    "toots without titles": FeedFormat(
        _RSS
        % """<image><url>https://social.example.com/a.jpg</url><title>Ann</title><link>https://social.example.com/@ann</link>
</image><lastBuildDate>Fri, 01 Mar 2024 12:00:00 +0000</lastBuildDate><webfeeds:icon>https://a.b/i</webfeeds:icon>%s""",
        f"""<item><guid isPermaLink="true">https://social.example.com/@ann/11{{n}}</guid>
<link>https://social.example.com/@ann/11{{n}}</link><pubDate>Fri, 01 Mar 2024 12:0{{n}}:00 +0000</pubDate>
<description>{escape(_HTML)}</description><media:content url="https://files.example.com/{{n}}.jpg" type="image/jpeg"
 fileSize="1" medium="image"><media:rating scheme="urn:simple">nonadult</media:rating>
<media:description type="plain">A loaf</media:description></media:content><category>bread</category></item>""",
    ),
    "a newspaper": FeedFormat(
        _RSS % "<copyright>© News</copyright><ttl>15</ttl><skipHours><hour>2</hour></skipHours>%s",
        """<item><title><![CDATA[Bread costs 5 € — “more than ever” {n}]]></title>
<description><![CDATA[Who pays?]]></description><link>https://news.example.com/{n}?at_medium=RSS&amp;at_campaign=x</link>
<author>desk@example.com (The desk)</author>
<guid isPermaLink="false">https://news.example.com/{n}#0</guid><pubDate>Fri, 01 Mar 2024 0{n}:00:00 EST</pubDate>
<media:thumbnail width="240" height="135" url="https://ichef.example.com/{n}.jpg"/>
<media:credit role="a">B</media:credit><media:keywords>bread, prices</media:keywords>
<georss:point>45.2 -71.9</georss:point></item>""",
    ),
    "a forum": FeedFormat(
        _FEED % ('xml:base="https://forum.example.com/"', "<subtitle>Talk</subtitle><icon>/f.ico</icon>%s"),
        f"""<entry><author><name>/u/ann</name><uri>https://forum.example.com/user/ann</uri></author>
<category term="bread" label="r/bread"/><content type="html">{escape(_HTML)}</content><id>t3_{{n}}</id>
<link href="https://forum.example.com/r/bread/{{n}}/"/><updated>2024-03-01T12:0{{n}}:00+00:00</updated>
<published>2024-03-01T12:0{{n}}:00+00:00</published><title>Is this bread? &lt;{{n}}&gt;</title></entry>""",
    ),
    "a site of RSS 1.0": FeedFormat(
        f"""<?xml version="1.0" encoding="UTF-8"?><rdf:RDF {_RDF}
 xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:sy="http://purl.org/rss/1.0/modules/syndication/"
 xmlns:slash="http://purl.org/rss/1.0/modules/slash/">
<channel rdf:about="https://example.com/"><title>News</title><link>https://example.com/</link><description>x</description>
<dc:language>en-us</dc:language><dc:date>2024-03-01T12:00:00+00:00</dc:date><sy:updatePeriod>daily</sy:updatePeriod>
<items><rdf:Seq><rdf:li rdf:resource="https://example.com/1"/></rdf:Seq></items><image rdf:resource="https://a.b/c.gif"/>
</channel><image rdf:about="https://a.b/c.gif"><title>Image</title><url>https://a.b/c.gif</url><link>https://a.b/</link>
</image>%s<textinput rdf:about="https://a.b/search"><title>Search</title><name>q</name><link>https://a.b/search</link>
</textinput></rdf:RDF>""",
        f"""<item rdf:about="https://example.com/{{n}}"><title>Bread {{n}}</title><link>https://example.com/{{n}}?from=rss</link>
<description>{escape(_HTML)}</description><dc:creator>Ann</dc:creator><dc:subject>bread</dc:subject>
<dc:date>2024-03-01T12:0{{n}}:00+00:00</dc:date><slash:section>food</slash:section></item>""",
    ),
    "a static site in XHTML": FeedFormat(
        _FEED
        % ('xml:lang="en"', '<updated>2024-03-01T12:00:00Z</updated><rights type="html">&amp;copy; Ann</rights>%s'),
        """<entry><title type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">Bread <em>{n}</em></div></title>
<link href="https://example.com/{n}"/><id>https://example.com/{n}</id><updated>2024-03-0{n}T12:00:00Z</updated>
<summary type="text">Short</summary><content type="xhtml" xml:base="https://example.com/">
<div xmlns="http://www.w3.org/1999/xhtml"><p id="a&amp;b">One &lt; two<br/><a href="x" title='"q"'>z</a></p> tail</div>
</content></entry>""",
    ),
    "a planet of other feeds": FeedFormat(
        _FEED % ("", "<generator uri='https://planet.example.com/'>Planet</generator>%s"),
        f"""<entry><title type="html">Bread {{n}}</title><link href="https://ann.example.com/{{n}}"/><id>urn:x:{{n}}</id>
<updated>2024-03-0{{n}}T12:00:00Z</updated><content type="html">{escape(_HTML)}</content>
<author><name>Ann</name></author><contributor><name>Bob</name></contributor>
<source><title type="html">Ann's</title><link href="https://ann.example.com/"/>
<id>https://ann.example.com/feed</id><updated>2024-03-01T12:00:00Z</updated></source></entry>""",
    ),
    "a proxy of feeds": FeedFormat(
        _RSS
        % """<atom10:link xmlns:atom10="http://www.w3.org/2005/Atom" rel="self" href="https://feeds.example.com/x"/>
<feedburner:info xmlns:feedburner="http://rssnamespace.org/feedburner/ext/1.0" uri="x"/>%s""",
        """<item><title>Bread {n}</title><link>https://feeds.example.com/~r/x/~3/{n}/</link>
<guid isPermaLink="false">https://example.com/{n}</guid><description>Bread&lt;img src="https://feeds.example.com/{n}"/&gt;
</description><pubDate>Fri, 01 Mar 2024 07:0{n}:00 PST</pubDate><source url="https://example.com/feed">Bread</source>
<feedburner:origLink xmlns:feedburner="http://rssnamespace.org/feedburner/ext/1.0">https://example.com/{n}</feedburner:origLink>
</item>""",
    ),
    "a script of somebody's": FeedFormat(
        '<rss version="0.92"><channel><title>News</title><link>index.php</link><description/>%s</channel></rss>',
        "<item><title>Bread {n}</title><link>news.php?id={n}&amp;c=1</link><description>{n}</description></item>",
    ),
}


def documents() -> Iterator[tuple[str, str]]:
    """Yield every format's feed with 0 to 5 entries, in both orders, on one line, and without single fields."""
    for name, feed_format in HABITS.items():
        for numbers in ((), (1,), (2, 1), (1, 2, 3), (5, 4, 3, 2, 1)):
            text = feed_format.frame % "\n".join(feed_format.entry.replace("{n}", str(number)) for number in numbers)
            yield f"{name} with {len(numbers)} entries, first {numbers[:1]}", text
        twice = feed_format.frame % (feed_format.entry.replace("{n}", "1") * 2)
        yield f"{name}, an entry twice", twice
        yield f"{name}, on one line", " ".join(twice.split())
        for element in ("title", "link", "id", "guid", "pubDate", "updated", "description", "content"):
            yield f"{name}, without {element}", twice.replace(f"<{element}", "<x").replace(f"</{element}>", "</x>")
            yield f"{name}, {element} in capitals", twice.replace(f"{element}>", f"{element.upper()}>")
