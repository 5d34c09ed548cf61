package sallyport.lib.schedule_test

import data.sallyport.lib.schedule

_ns(text) := time.parse_rfc3339_ns(text)

_vienna := {"timeZone": "Europe/Vienna"}

_nights := object.union(_vienna, {"days": ["Fri", "Sat"], "hours": {"from": "22:00", "to": "06:00"}})

_weekend := object.union(_vienna, {"days": ["Fri"], "hours": {"from": "18:00", "to": "06:00", "toDay": "Mon"}})

_year_end := object.union(_vienna, {"dates": {"from": "2026-12-20", "to": "2027-01-06"}})

_whole_days := object.union(_vienna, {"days": ["Sat", "Sun"]})

# In 2026 the clocks of Vienna are moved forward on March 29, from 02:00 to 03:00, and back on October 25, from 03:00 to 02:00.
_skipped := object.union(_vienna, {"hours": {"from": "02:00", "to": "03:00"}})

_hours(from, to) := {"timeZone": "UTC", "hours": {"from": from, "to": to}}

test_includes[note] if {
	some note, tc in {
		"in hours": {"schedule": _hours("08:00", "12:00"), "time": "2026-11-20T08:00:00Z", "is": true},
		"before hours": {"schedule": _hours("08:00", "12:00"), "time": "2026-11-20T07:59:59.999Z", "is": false},
		"at the end of hours": {"schedule": _hours("08:00", "12:00"), "time": "2026-11-20T12:00:00Z", "is": false},
		"until midnight": {"schedule": _hours("08:00", "00:00"), "time": "2026-11-20T23:59:59Z", "is": true},
		"over midnight, before": {"schedule": _hours("22:00", "06:00"), "time": "2026-11-20T22:00:00Z", "is": true},
		"over midnight, after": {"schedule": _hours("22:00", "06:00"), "time": "2026-11-20T05:59:00Z", "is": true},
		"over midnight, by day": {"schedule": _hours("22:00", "06:00"), "time": "2026-11-20T06:00:00Z", "is": false},
		"the night of the last day": {"schedule": _nights, "time": "2026-11-22T05:59:00+01:00", "is": true},
		"the evening after the last day": {"schedule": _nights, "time": "2026-11-22T22:00:00+01:00", "is": false},
		"the night before the first day": {"schedule": _nights, "time": "2026-11-20T05:00:00+01:00", "is": false},
		"the weekday in the zone": {"schedule": _whole_days, "time": "2026-11-20T23:00:00Z", "is": true},
		"the weekday in UTC": {"schedule": _whole_days, "time": "2026-11-20T22:59:00Z", "is": false},
		"over a weekend, as it begins": {"schedule": _weekend, "time": "2026-11-20T18:00:00+01:00", "is": true},
		"over a weekend, on its last day": {"schedule": _weekend, "time": "2026-11-23T05:59:00+01:00", "is": true},
		"over a weekend, at its end": {"schedule": _weekend, "time": "2026-11-23T06:00:00+01:00", "is": false},
		"over a weekend, during the week": {"schedule": _weekend, "time": "2026-11-25T20:00:00+01:00", "is": false},
		"for a week": {
			"schedule": object.union(_weekend, {"hours": {"toDay": "Fri"}}), "time": "2026-11-27T05:59:00+01:00", "is": true,
		},
		"for a week, after it": {
			"schedule": object.union(_weekend, {"hours": {"toDay": "Fri"}}), "time": "2026-11-27T06:00:00+01:00", "is": false,
		},
		"within the named day": {
			"schedule": object.union(_weekend, {"hours": {"to": "20:00", "toDay": "Fri"}}), "time": "2026-11-21T19:00:00+01:00", "is": false,
		},
		"before the first date": {"schedule": _year_end, "time": "2026-12-19T23:59:00+01:00", "is": false},
		"on the first date": {"schedule": _year_end, "time": "2026-12-20T00:00:00+01:00", "is": true},
		"on the last date": {"schedule": _year_end, "time": "2027-01-06T23:59:00+01:00", "is": true},
		"after the last date": {"schedule": _year_end, "time": "2027-01-07T00:00:00+01:00", "is": false},
		"to a time of the last date": {
			"schedule": object.union(_vienna, {"dates": {"from": "2026-12-20T18:00", "to": "2027-01-06T06:00"}}),
			"time": "2027-01-06T06:00:00+01:00", "is": false,
		},
		"from a time of the first date": {
			"schedule": object.union(_vienna, {"dates": {"from": "2026-12-20T18:00", "to": "2027-01-06T06:00"}}),
			"time": "2026-12-20T17:59:00+01:00", "is": false,
		},
		"hours of dates": {"schedule": object.union(_year_end, _hours("22:00", "06:00")), "time": "2026-12-20T05:00:00Z", "is": true},
		"hours before dates": {"schedule": object.union(_year_end, _hours("22:00", "06:00")), "time": "2026-12-19T22:30:00Z", "is": false},
		"the hour before the skipped one": {"schedule": _skipped, "time": "2026-03-29T00:59:00Z", "is": false},
		"the hour after the skipped one": {"schedule": _skipped, "time": "2026-03-29T01:00:00Z", "is": false},
		"the repeated hour": {"schedule": _skipped, "time": "2026-10-25T00:30:00Z", "is": true},
		"the repeated hour again": {"schedule": _skipped, "time": "2026-10-25T01:30:00Z", "is": true},
		"after the repeated hour": {"schedule": _skipped, "time": "2026-10-25T02:00:00Z", "is": false},
		"in summer": {"schedule": _nights, "time": "2026-07-24T20:00:00Z", "is": true},
		"in winter an hour later": {"schedule": _nights, "time": "2026-11-20T20:00:00Z", "is": false},
		"half an hour from UTC": {
			"schedule": object.union(_hours("22:00", "23:00"), {"timeZone": "Asia/Kolkata"}), "time": "2026-11-20T16:30:00Z", "is": true,
		},
	}
	included := {true | schedule.includes(tc.schedule, _ns(tc.time))}
	tc.is == (count(included) == 1)
}

test_next[note] if {
	some note, tc in {
		"later today": {"schedule": _nights, "time": "2026-11-20T12:00:00Z", "text": "Fri 2026-11-20 22:00 Europe/Vienna", "at": "2026-11-20T21:00:00Z"},
		"next week": {"schedule": _weekend, "time": "2026-11-23T12:00:00Z", "text": "Fri 2026-11-27 18:00 Europe/Vienna", "at": "2026-11-27T17:00:00Z"},
		"on the same day of next week": {
			"schedule": object.union(_hours("08:00", "09:00"), {"days": ["Fri"]}), "time": "2026-11-20T09:00:00Z",
			"text": "Fri 2026-11-27 08:00 UTC", "at": "2026-11-27T08:00:00Z",
		},
		"across the end of summer": {"schedule": _nights, "time": "2026-10-25T12:00:00Z", "text": "Fri 2026-10-30 22:00 Europe/Vienna", "at": "2026-10-30T21:00:00Z"},
		"on a date": {"schedule": _year_end, "time": "2026-06-01T12:00:00Z", "text": "Sun 2026-12-20 00:00 Europe/Vienna", "at": "2026-12-19T23:00:00Z"},
		"on a day of dates far off": {
			"schedule": object.union(_year_end, {"days": ["Wed"]}), "time": "2026-06-01T12:00:00Z",
			"text": "Wed 2026-12-23 00:00 Europe/Vienna", "at": "2026-12-22T23:00:00Z",
		},
		"in a night that begins before its dates": {
			"schedule": object.union(_year_end, object.union(_nights, {"days": ["Sat"]})), "time": "2026-06-01T12:00:00Z",
			"text": "Sun 2026-12-20 00:00 Europe/Vienna", "at": "2026-12-19T23:00:00Z",
		},
		"not in the skipped hour": {"schedule": _skipped, "time": "2026-03-28T12:00:00Z", "text": "Mon 2026-03-30 02:00 Europe/Vienna", "at": "2026-03-30T00:00:00Z"},
		"from the skipped hour on": {
			"schedule": object.union(_skipped, {"hours": {"to": "04:00"}}), "time": "2026-03-28T12:00:00Z",
			"text": "Sun 2026-03-29 02:00 Europe/Vienna", "at": "2026-03-29T01:00:00Z",
		},
		"into the skipped hour": {
			"schedule": object.union(_skipped, {"hours": {"from": "01:00"}}), "time": "2026-03-28T12:00:00Z",
			"text": "Sun 2026-03-29 01:00 Europe/Vienna", "at": "2026-03-29T00:00:00Z",
		},
		"the first of two such hours": {"schedule": _skipped, "time": "2026-10-24T12:00:00Z", "text": "Sun 2026-10-25 02:00 Europe/Vienna", "at": "2026-10-25T00:00:00Z"},
	}
	schedule.next(tc.schedule, _ns(tc.time)) == {"time": _ns(tc.at), "text": tc.text}
	schedule.includes(tc.schedule, _ns(tc.at))
	before := {true | schedule.includes(tc.schedule, _ns(tc.at) - 1)}
	count(before) == 0
}

test_not_again[note] if {
	some note, tc in {
		"its dates are over": {"schedule": _year_end, "time": "2027-01-07T00:00:00+01:00"},
		"days in dates that are over": {"schedule": object.union(_year_end, {"days": ["Sun"]}), "time": "2027-02-01T00:00:00Z"},
		"a day that its dates do not have": {
			"schedule": {"timeZone": "UTC", "days": ["Mon"], "dates": {"from": "2026-12-24", "to": "2026-12-26"}}, "time": "2026-12-01T00:00:00Z",
		},
	}
	schedule.next(tc.schedule, _ns(tc.time)) == null
}

test_end[note] if {
	some note, tc in {
		"after midnight": {"schedule": _nights, "time": "2026-11-20T22:30:00Z", "text": "Sat 2026-11-21 06:00 Europe/Vienna"},
		"of a weekend": {"schedule": _weekend, "time": "2026-11-21T12:00:00Z", "text": "Mon 2026-11-23 06:00 Europe/Vienna"},
		"of days in a row": {"schedule": _whole_days, "time": "2026-11-21T12:00:00Z", "text": "Mon 2026-11-23 00:00 Europe/Vienna"},
		"of dates": {"schedule": _year_end, "time": "2026-12-20T12:00:00Z", "text": "Thu 2027-01-07 00:00 Europe/Vienna"},
		"of the dates of its days": {
			"schedule": object.union(_whole_days, {"dates": {"from": "2026-11-01", "to": "2026-11-21"}}), "time": "2026-11-21T12:00:00Z",
			"text": "Sun 2026-11-22 00:00 Europe/Vienna",
		},
		"never": {
			"schedule": {"timeZone": "UTC", "days": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]}, "time": "2026-11-21T12:00:00Z", "text": null,
		},
	}
	schedule.end(tc.schedule, _ns(tc.time)) == tc.text
}
