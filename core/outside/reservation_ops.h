// Reservations as operations of a program. All of one reservation are in program order, step after step, by the edges
// of the compiler: lanes that requested on a first-come basis could each hold what the other waits for.
#pragma once

#include <memory>

#include "outside/external.h"
#include "outside/reservation.h"

namespace ostinato {

class AcquireOp final : public ExternalOp {
public:
    // `holding`: which of the program's holdings counts what it holds of this reservation.
    AcquireOp(std::shared_ptr<Reservation> reservation, std::uint32_t holding, bool exclusive)
        : reservation_(std::move(reservation)), holding_(holding), exclusive_(exclusive) {}
    Outcome advance(ExternalContext context) const override;
    void skip(ExternalContext context) const override;
    std::string waits_for(const Run& run, std::uint64_t step) const override;

private:
    std::shared_ptr<Reservation> reservation_;
    std::uint32_t holding_;
    bool exclusive_;
};

class ReleaseOp final : public ExternalOp {
public:
    ReleaseOp(std::shared_ptr<Reservation> reservation, std::uint32_t holding)
        : reservation_(std::move(reservation)), holding_(holding) {}
    Outcome advance(ExternalContext context) const override;
    void skip(ExternalContext context) const override;  // what is held is released whatever happened
    std::string waits_for(const Run&, std::uint64_t) const override { return "nothing"; }

private:
    std::shared_ptr<Reservation> reservation_;
    std::uint32_t holding_;
};

}  // namespace ostinato
