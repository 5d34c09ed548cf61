# METADATA
# title: Times of the week, and dates
# description: >-
#   A schedule has a timeZone, and days, hours and dates, each of which may be missing. The clocks in its time zone decide, so that
#   daylight-saving time moves nothing. If the clocks repeat an hour, both count. Days are those on which the hours begin. The hours may
#   end on the next day, or on the day of the week in hours.toDay. Arguments with the name time are nanoseconds since 1970.
package sallyport.lib.schedule

# METADATA
# description: Whether a schedule includes a time.
includes(schedule, time_ns) if {
	clock := _clock(time_ns, schedule.timeZone)
	some span in _spans(schedule, _day(clock), _back(schedule))
	_within(span, clock)
}

# METADATA
# description: >-
#   When a schedule that does not include a time begins next: the time, and its text, such as "Sat 2026-11-21 22:00 Europe/Vienna". It is null
#   if the schedule does not begin again.
next(schedule, time_ns) := point if {
	clocks := _begins(schedule, time_ns)
	count(clocks) > 0
	clock := min(clocks)
	point := {"time": _instant(clock, schedule.timeZone), "text": _text(clock, schedule.timeZone)}
} else := null

# METADATA
# description: When a schedule that includes a time ends, as a text. It is null if the schedule does not end within two weeks.
end(schedule, time_ns) := text if {
	clocks := _ends(schedule, time_ns)
	count(clocks) > 0
	text := _text(min(clocks), schedule.timeZone)
} else := null

# A clock is a text such as 2026-11-20T22:30. Clocks compare as texts.
_clock(time_ns, zone) := time.format([time_ns, zone, _layout])

_layout := "2006-01-02T15:04"

_within(span, clock) if {
	span.from <= clock
	clock < span.to
}

# Days are counted from their beginning in UTC, whatever the zone: they all have 24 hours there.
_day_ns := 86400000000000

_day(clock) := time.parse_ns("2006-01-02", substring(clock, 0, 10))

_date(day_ns) := time.format([day_ns, "UTC", "2006-01-02"])

_weekday(day_ns) := time.format([day_ns, "UTC", "Mon"])

_weekdays := {"Mon": 0, "Tue": 1, "Wed": 2, "Thu": 3, "Fri": 4, "Sat": 5, "Sun": 6}

# The days on which a span may have begun that includes a clock.
_back(schedule) := [-1, 0] if not _has_day(schedule)

_back(schedule) := [-7, -6, -5, -4, -3, -2, -1, 0] if _has_day(schedule)

_ahead := [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]

_has_day(schedule) if "toDay" in object.keys(schedule.hours)

# The spans that begin on days around a day. Dates without days and hours are one span.
_spans(schedule, day_ns, offsets) := [span |
	some offset in offsets
	first := day_ns + (offset * _day_ns)
	_on(schedule, _weekday(first))
	last := first + (_length(schedule, _weekday(first)) * _day_ns)
	span := {
		"from": max([$"{_date(first)}T{_from(schedule)}", _earliest(schedule)]),
		"to": min([$"{_date(last)}T{_to(schedule)}", _latest(schedule)]),
	}
	span.from < span.to
] if {
	_weekly(schedule)
}

_spans(schedule, _, _) := [{"from": _earliest(schedule), "to": _latest(schedule)}] if not _weekly(schedule)

_weekly(schedule) if count({"days", "hours"} & object.keys(schedule)) > 0

_on(schedule, _) if not "days" in object.keys(schedule)

_on(schedule, day) if day in schedule.days

_from(schedule) := object.get(schedule, ["hours", "from"], "00:00")

_to(schedule) := object.get(schedule, ["hours", "to"], "00:00")

# How many days after its first day a span ends.
_length(schedule, _) := 0 if {
	not _has_day(schedule)
	_from(schedule) < _to(schedule)
}

_length(schedule, _) := 1 if {
	not _has_day(schedule)
	_from(schedule) >= _to(schedule)
}

_length(schedule, day) := _distance(schedule, day) if {
	_has_day(schedule)
	not _comes_round(schedule, day)
}

_length(schedule, day) := 7 if {
	_has_day(schedule)
	_comes_round(schedule, day)
}

_distance(schedule, day) := ((_weekdays[schedule.hours.toDay] - _weekdays[day]) + 7) % 7

_comes_round(schedule, day) if {
	_distance(schedule, day) == 0
	_from(schedule) >= _to(schedule)
}

_earliest(schedule) := _start(object.get(schedule, ["dates", "from"], "0000-01-01"))

_start(date) := $"{date}T00:00" if count(date) == 10

_start(date) := date if count(date) > 10

# The last date is included.
_latest(schedule) := "9999-12-31T00:00" if not "dates" in object.keys(schedule)

_latest(schedule) := $"{_date(_day(schedule.dates.to) + _day_ns)}T00:00" if count(schedule.dates.to) == 10

_latest(schedule) := schedule.dates.to if count(schedule.dates.to) > 10

# The clocks at which spans begin after a time. If the dates begin later, these are counted from there.
_begins(schedule, time_ns) := {span.from |
	clock := _clock(time_ns, schedule.timeZone)
	some span in _spans(schedule, _day(max([clock, _earliest(schedule)])), array.concat(_back(schedule), _ahead))
	span.from > clock
	_happens(span, schedule.timeZone)
}

# The clocks at which a span ends after a time, and no other span continues. What continues the last span is not known.
_ends(schedule, time_ns) := {span.to |
	clock := _clock(time_ns, schedule.timeZone)
	spans := _spans(schedule, _day(clock), array.concat(_back(schedule), _ahead))
	some span in spans
	span.to > clock
	_in_sight(schedule, span, _day(clock))
	count([1 | some other in spans; _within(other, span.to)]) == 0
}

_in_sight(schedule, _, _) if not _weekly(schedule)

_in_sight(schedule, span, day_ns) if {
	_weekly(schedule)
	span.to <= $"{_date(day_ns + (14 * _day_ns))}T00:00"
}

# When the clocks are moved forward, they skip an hour, and with it what begins and ends in that hour.
_happens(span, zone) if count(_instants(span.from, zone)) > 0

_happens(span, zone) if count(_instants(_minute_before(span.to), zone)) > 0

_minute_before(clock) := _clock(time.parse_ns(_layout, clock) - 60000000000, "UTC")

# The times at which clocks in the zone show this: two if the clocks repeat it, none if they skip it.
_instants(clock, zone) := {time_ns |
	utc := time.parse_ns(_layout, clock)
	some near in [utc - _day_ns, utc + _day_ns]
	time_ns := utc - _ahead_of_utc(near, zone)
	_clock(time_ns, zone) == clock
}

# Some zones were ahead by seconds, too, but none is now.
_ahead_of_utc(time_ns, zone) := time.parse_ns(_layout, _clock(time_ns, zone)) - time_ns

_instant(clock, zone) := min(_instants(clock, zone) | {_skipping(clock, zone)})

_skipping(clock, zone) := utc - _ahead_of_utc(utc - _day_ns, zone) if utc := time.parse_ns(_layout, clock)

_text(clock, zone) := $"{_weekday(_day(clock))} {substring(clock, 0, 10)} {substring(clock, 11, -1)} {zone}"
