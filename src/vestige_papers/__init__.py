"""Every table and figure of the four papers that can be run here: one file each, one line each in `EXPERIMENTS`."""

from typing import Any

from vestige.runner import Experiment
from vestige_papers.beyond.audit import BeyondAudit
from vestige_papers.beyond.augment import BeyondAugment
from vestige_papers.beyond.chain import BeyondChain
from vestige_papers.beyond.matrix import BeyondMatrix
from vestige_papers.beyond.matrix_images import BeyondMatrixImages
from vestige_papers.beyond.replay import BeyondReplay
from vestige_papers.beyond.scenarios import BeyondScenarios
from vestige_papers.beyond.vestige import BeyondVestige
from vestige_papers.cdre.fig2 import CDREFig2a, CDREFig2b, CDREFig2c, CDREFig2d
from vestige_papers.cdre.fig5 import CDREFig5
from vestige_papers.cdre.generators import CDREFig3, CDREFig4, CDREFig6, CDREFig7
from vestige_papers.cdre.table1 import CDRETable1
from vestige_papers.cdre.table2 import CDRETable2
from vestige_papers.lfiw.calibration import LFIWCalibration
from vestige_papers.lfiw.fig1 import LFIWFig1
from vestige_papers.lfiw.table1 import LFIWTable1
from vestige_papers.lfiw.table2 import LFIWFig2, LFIWTable2
from vestige_papers.lfiw.table2_covtype import LFIWTable2Covtype
from vestige_papers.lfiw.table3 import LFIWFig3, LFIWTable3
from vestige_papers.lfiw.table4 import LFIWTable4, LFIWTable5
from vestige_papers.robust.audit import RobustAudit
from vestige_papers.robust.early import RobustFig2, RobustFig3, RobustFig4
from vestige_papers.robust.permuted import RobustFig9, RobustFig10
from vestige_papers.robust.replay import RobustFig11, RobustFig12, RobustFig19, RobustFig20, RobustFig21
from vestige_papers.robust.search import RobustSearch
from vestige_papers.robust.split import RobustFig5, RobustFig6, RobustFig7, RobustFig8
from vestige_papers.robust.timed import RobustFig13, RobustFig14
from vestige_papers.robust.unseen import RobustFig15, RobustFig16, RobustFig17, RobustFig18
from vestige_papers.rwalk.samples import RWalkFig4, RWalkFig5
from vestige_papers.rwalk.search import RWalkSearchCIFAR, RWalkSearchMNIST
from vestige_papers.rwalk.table1 import RWalkTable1CIFAR, RWalkTable1MNIST
from vestige_papers.rwalk.table2 import RWalkTable2
from vestige_papers.rwalk.table3 import RWalkTable3
from vestige_papers.rwalk.tasks import RWalkFig2, RWalkFig3, RWalkFig6

EXPERIMENTS: dict[str, Experiment[Any]] = {
    "beyond-audit": BeyondAudit(),
    "beyond-augment": BeyondAugment(),
    "beyond-chain": BeyondChain(),
    "beyond-matrix": BeyondMatrix(),
    "beyond-matrix-images": BeyondMatrixImages(),
    "beyond-replay": BeyondReplay(),
    "beyond-scenarios": BeyondScenarios(),
    "beyond-vestige": BeyondVestige(),
    "cdre-fig2a": CDREFig2a(),
    "cdre-fig2b": CDREFig2b(),
    "cdre-fig2c": CDREFig2c(),
    "cdre-fig2d": CDREFig2d(),
    "cdre-fig3": CDREFig3(),
    "cdre-fig4": CDREFig4(),
    "cdre-fig5": CDREFig5(),
    "cdre-fig6": CDREFig6(),
    "cdre-fig7": CDREFig7(),
    "cdre-table1": CDRETable1(),
    "cdre-table2": CDRETable2(),
    "lfiw-calibration": LFIWCalibration(),
    "lfiw-fig1": LFIWFig1(),
    "lfiw-fig2": LFIWFig2(),
    "lfiw-fig3": LFIWFig3(),
    "lfiw-table1": LFIWTable1(),
    "lfiw-table2": LFIWTable2(),
    "lfiw-table2-covtype": LFIWTable2Covtype(),
    "lfiw-table3": LFIWTable3(),
    "lfiw-table4": LFIWTable4(),
    "lfiw-table5": LFIWTable5(),
    "robust-audit": RobustAudit(),
    "robust-fig2": RobustFig2(),
    "robust-fig3": RobustFig3(),
    "robust-fig4": RobustFig4(),
    "robust-fig5": RobustFig5(),
    "robust-fig6": RobustFig6(),
    "robust-fig7": RobustFig7(),
    "robust-fig8": RobustFig8(),
    "robust-fig9": RobustFig9(),
    "robust-fig10": RobustFig10(),
    "robust-fig11": RobustFig11(),
    "robust-fig12": RobustFig12(),
    "robust-fig13": RobustFig13(),
    "robust-fig14": RobustFig14(),
    "robust-fig15": RobustFig15(),
    "robust-fig16": RobustFig16(),
    "robust-fig17": RobustFig17(),
    "robust-fig18": RobustFig18(),
    "robust-fig19": RobustFig19(),
    "robust-fig20": RobustFig20(),
    "robust-fig21": RobustFig21(),
    "robust-search": RobustSearch(),
    "rwalk-fig2": RWalkFig2(),
    "rwalk-fig3": RWalkFig3(),
    "rwalk-fig4": RWalkFig4(),
    "rwalk-fig5": RWalkFig5(),
    "rwalk-fig6": RWalkFig6(),
    "rwalk-search-cifar": RWalkSearchCIFAR(),
    "rwalk-search-mnist": RWalkSearchMNIST(),
    "rwalk-table1-cifar": RWalkTable1CIFAR(),
    "rwalk-table1-mnist": RWalkTable1MNIST(),
    "rwalk-table2": RWalkTable2(),
    "rwalk-table3": RWalkTable3(),
}

__all__ = ["EXPERIMENTS"]
