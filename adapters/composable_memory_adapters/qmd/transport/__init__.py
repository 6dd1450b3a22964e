"""From a query to QMD's hits: building the request, choosing a transport, parsing the reply."""
