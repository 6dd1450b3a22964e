"""Makes small PDF, DOCX and EPUB files, byte by byte."""

import zipfile
from collections.abc import Mapping
from io import BytesIO

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
FONT = "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"


def pdf(*pages: str) -> bytes:
    """Return a PDF with these pages, a line of text below the other."""
    kids = " ".join(f"{number} 0 R" for number in range(3, 3 + 2 * len(pages), 2))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
    ]
    for number, page in enumerate(pages):
        drawn = "\n".join(f"({line}) Tj T*" for line in page.split("\n"))
        content = f"BT /F1 12 Tf 14 TL 72 720 Td\n{drawn}\nET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R {FONT} /Contents {4 + 2 * number} 0 R >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    data = b"%PDF-1.4\n"
    places = []
    for number, one in enumerate(objects, start=1):
        places.append(len(data))
        data += f"{number} 0 obj\n{one}\nendobj\n".encode("latin-1")
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    trailer = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + (head + trailer).encode()


def archive(files: Mapping[str, str | bytes]) -> bytes:
    """Return a zip file."""
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return data.getvalue()


def paragraph(text: str, *, style: str = "") -> str:
    """Return a paragraph of a DOCX."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def docx(body: str) -> bytes:
    """Return a DOCX as a German Word names its styles, with its text elsewhere than usual."""
    relation = f'<Relationship Type="{OFFICE}" Target="/word/main.xml"/>'
    style = '<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
    return archive(
        {
            "_rels/.rels": f'<Relationships xmlns="x">{relation}</Relationships>',
            "word/main.xml": f'<?xml version="1.0"?><w:document {WORD}><w:body>{body}</w:body></w:document>',
            "word/styles.xml": f"<w:styles {WORD}>{style}</w:styles>",
        }
    )


def epub(*chapters: str) -> bytes:
    """Return an EPUB with these chapters."""
    items = "".join(f'<item id="c{at}" href="text%20{at}.xhtml"/>' for at in range(len(chapters)))
    spine = "".join(f'<itemref idref="c{at}"/>' for at in range(len(chapters)))
    pages = {
        f"OEBPS/text {at}.xhtml": f'<?xml version="1.0" encoding="utf-8"?><html><head><title>T{at}</title>'
        f'<script src="x"/></head><body>{text}</body></html>'
        for at, text in enumerate(chapters)
    }
    container = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
    package = f"<package><manifest>{items}</manifest><spine>{spine}</spine></package>"
    return archive({"META-INF/container.xml": container, "OEBPS/book.opf": package, **pages})
